"""ApiVersions: the APIs that this broker supports, and their versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neve.broker.error_codes import NO_ERROR, code_of
from neve.errors import InvalidError
from neve.protocol.messages import APIS
from neve.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3


def handle(broker: Broker, request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    del broker
    if context.api_version >= _SOFTWARE_SINCE:
        for name in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(name):
                return ApiVersionsResponse(error_code=code_of(InvalidError))
    return response()


def response(error_code: int = NO_ERROR) -> ApiVersionsResponse:
    """List every API; the list is the same in all versions of the response."""
    keys = [
        ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=api.min_version, max_version=api.max_version
        )
        for key, api in sorted(APIS.items())
    ]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)
