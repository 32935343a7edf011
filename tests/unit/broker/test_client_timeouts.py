"""How long we wait depends on what for, and on whether anything moves."""

from __future__ import annotations

import pytest

from neve.broker.client_timeouts import CLOSING_SECONDS, ClientTimeouts, Waiting

IDLE = 100.0


def test_who_waits_for_us_has_all_the_time_there_is() -> None:
    assert not ClientTimeouts(0.0).is_over(Waiting.NOTHING, 1e9, IDLE)


@pytest.mark.parametrize(
    "waiting", [Waiting.A_REQUEST, Waiting.REST_OF_REQUEST, Waiting.TAKE_ANSWERS]
)
def test_a_client_that_does_nothing_is_waited_for_so_long(waiting: Waiting) -> None:
    patience = ClientTimeouts(0.0)
    assert not patience.is_over(waiting, IDLE, IDLE)
    assert patience.is_over(waiting, IDLE + 1, IDLE)


def test_bytes_that_dribble_in_do_not_make_a_request_younger() -> None:
    patience = ClientTimeouts(0.0)
    patience.active_at = 99.0
    assert not patience.is_over(Waiting.A_REQUEST, 101.0, IDLE)
    assert patience.is_over(Waiting.REST_OF_REQUEST, 101.0, IDLE)


def test_a_client_that_reads_slowly_is_waited_for_as_long_as_it_reads() -> None:
    patience = ClientTimeouts(0.0)
    for now in range(50, 1_000, 50):
        assert patience.saw_unsent(10_000 - now, float(now))
        assert not patience.is_over(Waiting.TAKE_ANSWERS, float(now), IDLE)
    assert not patience.saw_unsent(10_000 - 950, 1_040.0)
    assert not patience.is_over(Waiting.TAKE_ANSWERS, 1_040.0, IDLE)
    assert patience.is_over(Waiting.TAKE_ANSWERS, 1_051.0, IDLE)


def test_what_is_being_closed_is_not_waited_for_long() -> None:
    patience = ClientTimeouts(0.0)
    patience.active_at = 500.0
    assert not patience.is_over(Waiting.CLOSE, 500.0 + CLOSING_SECONDS, IDLE)
    assert patience.is_over(Waiting.CLOSE, 501.0 + CLOSING_SECONDS, IDLE)
