from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import init_producer_id
from neve.errors import ConflictError, FencedError, NeveError, UnavailableError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from support.broker_world import StandIn, ask, start_broker, versions

HIGHEST = INIT_PRODUCER_ID.max_version


async def told(broker: StandIn, version: int = HIGHEST, **content: Any) -> Any:
    given = {"transactional_id": None, **content}
    return await ask(broker, init_producer_id, INIT_PRODUCER_ID, version, **given)


@pytest.mark.parametrize("version", versions(INIT_PRODUCER_ID))
async def test_every_producer_gets_an_id_of_its_own_under_epoch_0(version: int) -> None:
    broker = await start_broker()
    answers = [await told(broker, version) for _ in range(3)]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    assert len({answer.producer_id for answer in answers}) == 3
    assert min(answer.producer_id for answer in answers) >= 0
    await broker.node.abort()


async def test_a_producer_that_starts_anew_gets_a_fresh_id() -> None:
    broker = await start_broker()
    answer = await told(broker, producer_id=12, producer_epoch=3)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != 12
    await broker.node.abort()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "tx"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_is_refused(content: dict[str, Any], code: ErrorCode) -> None:
    broker = await start_broker()
    answer = await told(broker, **content)
    assert answer.error_code == code
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    await broker.node.abort()


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("meta/log", "it is down"),
        ConflictError("meta/log", "others were quicker"),
        FencedError("somebody else has taken over"),
    ],
)
async def test_a_store_that_fails_is_told_so_that_the_producer_tries_again(
    error: NeveError, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()

    async def fails() -> int:
        raise error

    monkeypatch.setattr(broker.node.producer_ids, "next", fails)
    # Without transactions there is no coordinator that it could be sent to look for.
    assert (await told(broker)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await broker.node.abort()
