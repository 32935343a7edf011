"""How long we wait depends on what for, and on whether anything moves."""

from __future__ import annotations

import pytest

from neve.broker.client_timeouts import (
    CLOSING_SECONDS,
    LINGER_SECONDS,
    ClientTimeouts,
    Waiting,
)

IDLE = 100.0


def test_who_waits_for_us_has_all_the_time_there_is() -> None:
    assert not ClientTimeouts(0.0).is_over(Waiting.NOTHING, 1e9, IDLE)


@pytest.mark.parametrize(
    "waiting", [Waiting.A_REQUEST, Waiting.REST_OF_REQUEST, Waiting.READ_RESPONSES]
)
def test_a_client_that_does_nothing_is_waited_for_so_long(waiting: Waiting) -> None:
    timeouts = ClientTimeouts(0.0)
    assert not timeouts.is_over(waiting, IDLE, IDLE)
    assert timeouts.is_over(waiting, IDLE + 1, IDLE)


def test_bytes_that_dribble_in_do_not_make_a_request_younger() -> None:
    timeouts = ClientTimeouts(0.0)
    timeouts.active_at = 99.0
    assert not timeouts.is_over(Waiting.A_REQUEST, 101.0, IDLE)
    assert timeouts.is_over(Waiting.REST_OF_REQUEST, 101.0, IDLE)


def test_a_client_that_reads_slowly_is_waited_for_as_long_as_it_reads() -> None:
    timeouts = ClientTimeouts(0.0)
    for now in range(50, 1_000, 50):
        assert timeouts.saw_unsent(10_000 - now, float(now))
        assert not timeouts.is_over(Waiting.READ_RESPONSES, float(now), IDLE)
    assert not timeouts.saw_unsent(10_000 - 950, 1_040.0)
    assert not timeouts.is_over(Waiting.READ_RESPONSES, 1_040.0, IDLE)
    assert timeouts.is_over(Waiting.READ_RESPONSES, 1_051.0, IDLE)


@pytest.mark.parametrize(
    ("waiting", "seconds"),
    [(Waiting.READ_LAST_RESPONSES, CLOSING_SECONDS), (Waiting.CLOSE, LINGER_SECONDS)],
)
def test_a_connection_that_is_closing_has_little_time(waiting: Waiting, seconds: float) -> None:
    timeouts = ClientTimeouts(0.0)
    timeouts.active_at = 500.0
    assert not timeouts.is_over(waiting, 500.0 + seconds, IDLE)
    assert timeouts.is_over(waiting, 501.0 + seconds, IDLE)
