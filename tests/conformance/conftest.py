"""Brokers for clients to talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers import RunningBroker, start_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One for all tests of a file. It ends as it should, and has nothing to complain of."""
    folder = tmp_path_factory.mktemp("broker")
    running = start_broker(
        folder / "bucket",
        folder / "log",
        group_initial_rebalance_delay_ms=100,
        group_min_session_timeout_ms=500,
    )
    yield running
    assert running.stop() == 0, running.log
    assert "Traceback" not in running.log
