"""Brokers for clients to talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers import RunningBroker, start_broker


@pytest.fixture(
    scope="module",
    params=[1, pytest.param(3, marks=pytest.mark.soak)],
    ids=["one", "cluster"],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """One for all tests of a file. It ends as it should, and has nothing to complain of.

    In the long form, also a cluster of three: whatever a client does must not depend on which
    broker it asks first.
    """
    folder = tmp_path_factory.mktemp("broker")
    running = start_broker(
        folder / "bucket",
        folder / "log",
        brokers=request.param,
        group_initial_rebalance_delay_ms=100,
        group_min_session_timeout_ms=500,
    )
    yield running
    assert running.stop() == 0, running.log
    assert "Traceback" not in running.log
