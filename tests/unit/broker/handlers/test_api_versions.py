from __future__ import annotations

import pytest

from neve.broker.handlers import api_versions
from neve.protocol.codes import ErrorCode
from neve.protocol.messages import APIS
from neve.protocol.messages.api_versions import API_VERSIONS
from support.broker_world import ask, start_broker, versions

SOFTWARE = {"client_software_name": "test-client", "client_software_version": "1.0.2"}


@pytest.mark.parametrize("version", versions(API_VERSIONS))
async def test_every_api_is_told_with_its_versions(version: int) -> None:
    broker = await start_broker()
    answer = await ask(broker, api_versions, API_VERSIONS, version, **SOFTWARE)
    assert answer.error_code == 0
    listed = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    assert listed == [(key, APIS[key].min_version, APIS[key].max_version) for key in sorted(APIS)]
    await broker.node.abort()


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 40 + "-"])
async def test_a_client_that_names_itself_wrongly_is_refused_since_version_3(name: str) -> None:
    broker = await start_broker()
    given = {**SOFTWARE, "client_software_name": name}
    answer = await ask(broker, api_versions, API_VERSIONS, 3, **given)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    answer = await ask(broker, api_versions, API_VERSIONS, 2, **given)
    assert answer.error_code == 0
    await broker.node.abort()


def test_who_asks_in_an_unknown_version_gets_the_list_in_version_0() -> None:
    response = api_versions.response(ErrorCode.UNSUPPORTED_VERSION)
    data = memoryview(b"".join(map(bytes, API_VERSIONS.Response.encode(response, 0))))
    decoded = API_VERSIONS.Response.decode(data, 0)
    assert decoded.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {row.api_key for row in decoded.api_keys} == set(APIS)
