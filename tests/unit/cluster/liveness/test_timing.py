"""The intervals come from the settings."""

from __future__ import annotations

from neve.cluster.liveness.timing import Timing
from neve.cluster.liveness.watchers import WATCHERS_DEFAULT
from neve.settings import ClusterSettings
from support.liveness_world import TIMING


def test_the_intervals_are_those_of_the_settings() -> None:
    given = ClusterSettings(heartbeat_ms=200, session_ms=900, poll_ms=70)
    assert Timing.of(given) == Timing(interval_seconds=0.2, session_seconds=0.9, grace_seconds=0.67)
    assert Timing.of(given).recent_seconds == 0.4


def test_the_tests_use_the_defaults() -> None:
    assert Timing.of(ClusterSettings()) == TIMING
    assert ClusterSettings().watchers == WATCHERS_DEFAULT
