"""What the membership of a broker logs when its work fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neve.cluster.membership import Membership
from neve.errors import FencedError
from neve.settings import ClusterSettings


def membership_of(failure: BaseException) -> Membership:
    """Of a node whose releases fail."""

    async def release(_: object) -> Any:
        raise failure

    node: Any = SimpleNamespace(
        releases=SimpleNamespace(release=release),
        cluster=SimpleNamespace(state=SimpleNamespace(rebalances=0)),
    )
    return Membership(node, SimpleNamespace(), ClusterSettings())


@pytest.mark.parametrize(
    ("failure", "logged"), [(FencedError("over"), 0), (RuntimeError("a bug"), 1)]
)
async def test_a_fenced_broker_logs_no_failed_task(
    failure: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A release that finds the broker declared dead is no bug: its caller gets the error."""
    membership = membership_of(failure)
    with pytest.raises(type(failure)):
        await membership.release({})
    assert len(caplog.records) == logged
