"""ApiVersions: which requests, in which versions, this broker answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from neve.protocol.codes import ErrorCode
from neve.protocol.messages import APIS
from neve.protocol.messages.api_versions import API_VERSIONS

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = API_VERSIONS.Response
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3


def handle(broker: Broker, request: Any, context: Context) -> Any:
    del broker
    if context.api_version >= _SOFTWARE_SINCE:
        for name in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(name):
                return _Response(error_code=ErrorCode.INVALID_REQUEST)
    return response(context.api_version)


def response(version: int, error_code: int = ErrorCode.NONE) -> Any:
    """The list, for a client that speaks `version`; also for one that asked in an unknown one."""
    del version  # all versions list the same
    keys = [
        _Response.ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in sorted(APIS.items())
    ]
    return _Response(error_code=error_code, api_keys=keys)
