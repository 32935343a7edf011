"""One leadership check for all partitions or groups of a request."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.broker.admin.partitions import LeadershipCheck
from neve.errors import UnavailableError


async def test_a_check_serves_requests_for_partitions_that_run_at_once() -> None:
    async def leading() -> bool:
        await runtime.sleep(0.001)
        return True

    check = LeadershipCheck(leading)
    assert await runtime.gather(*(check() for _ in range(3))) == [True, True, True]


async def test_a_check_that_failed_is_not_repeated_for_the_same_request() -> None:
    checks = 0

    async def failing() -> bool:
        nonlocal checks
        checks += 1
        raise UnavailableError("wal/1/", "slow")

    check = LeadershipCheck(failing)
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await check()
    assert checks == 1


async def test_a_check_that_a_deadline_ended_is_not_repeated_for_the_same_request() -> None:
    checks = 0

    async def hanging() -> bool:
        nonlocal checks
        checks += 1
        await runtime.sleep(60)
        return True

    check = LeadershipCheck(hanging)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with runtime.deadline(0.01):
                await check()
    assert checks == 1
