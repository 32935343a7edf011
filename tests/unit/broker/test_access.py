"""Every API says which access it needs, and a principal without it is refused."""

from __future__ import annotations

import pytest

from neve.broker.access import ANONYMOUS, Principal, authorize
from neve.broker.error_codes import admin_error
from neve.broker.errors import NotAuthorizedError
from neve.broker.router import Route, Router
from neve.protocol.codes import ErrorCode
from neve.protocol.frames import RequestHeader
from neve.protocol.messages import APIS
from neve.protocol.messages.api_versions import API_VERSIONS


def route_of(key: int) -> Route:
    header = RequestHeader(key, APIS[key].max_version, 1, None, 0)
    route = Router().find(header)
    assert route is not None
    return route


@pytest.mark.parametrize("key", APIS)
def test_clients_of_an_open_listener_may_call_every_api(key: int) -> None:
    authorize(route_of(key), ANONYMOUS)


@pytest.mark.parametrize("key", sorted(set(APIS) - {API_VERSIONS.key}))
def test_a_principal_without_access_is_refused(key: int) -> None:
    with pytest.raises(
        NotAuthorizedError, match=f"User:eve may not call {APIS[key].name}"
    ) as refused:
        authorize(route_of(key), Principal("User:eve"))
    assert admin_error(refused.value)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_any_client_may_ask_for_versions() -> None:
    authorize(route_of(API_VERSIONS.key), Principal("User:eve"))
