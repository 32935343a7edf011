"""Fetch sessions: what a consumer says once need not be said again."""

from __future__ import annotations

from types import SimpleNamespace as Row
from typing import Any

import pytest

from neve import runtime
from neve.broker.error_codes import fetch_error
from neve.broker.errors import FetchSessionError
from neve.broker.fetch.sessions import FINAL_EPOCH, FIRST_EPOCH, PARTITION_BYTES, FetchSessions
from neve.protocol.codes import ErrorCode

NO_ID = bytes(16)


def asked(index: int, offset: int = 0, max_bytes: int = 1000) -> Any:
    return Row(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=-1,
    )


def request(
    session_id: int, epoch: int, *topics: tuple[str, list[Any]], forgotten: Any = ()
) -> Any:
    return Row(
        session_id=session_id,
        session_epoch=epoch,
        topics=[Row(topic=name, topic_id=NO_ID, partitions=rows) for name, rows in topics],
        forgotten_topics_data=[
            Row(topic=name, topic_id=NO_ID, partitions=rows) for name, rows in forgotten
        ],
    )


def names(wanted: list[Any]) -> list[tuple[str, int, int]]:
    return [(row.topic, row.index, row.offset) for row in wanted]


def test_a_session_remembers_what_it_was_asked_and_takes_changes() -> None:
    sessions = FetchSessions(10, 60)
    begun, wanted, incremental = sessions.begin(
        request(0, FIRST_EPOCH, ("a", [asked(0), asked(1)]), ("b", [asked(0, 7)])), False
    )
    assert begun is not None
    assert names(wanted) == [("a", 0, 0), ("a", 1, 0), ("b", 0, 7)]
    assert not incremental
    again, wanted, incremental = sessions.begin(
        request(begun.session_id, 1, ("a", [asked(1, 5)]), forgotten=[("b", [0])]), False
    )
    assert again is begun
    assert incremental
    assert names(wanted) == [("a", 0, 0), ("a", 1, 5)]
    _, wanted, _ = sessions.begin(request(begun.session_id, 2, ("c", [asked(3, 9)])), False)
    assert names(wanted) == [("a", 0, 0), ("a", 1, 5), ("c", 3, 9)]


def test_a_request_without_a_session_gets_everything_and_leaves_nothing() -> None:
    sessions = FetchSessions(10, 60)
    session, wanted, incremental = sessions.begin(request(0, FINAL_EPOCH, ("a", [asked(0)])), False)
    assert session is None
    assert not incremental
    assert names(wanted) == [("a", 0, 0)]
    assert len(sessions) == 0


def test_the_final_epoch_ends_a_session() -> None:
    sessions = FetchSessions(10, 60)
    begun, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("a", [asked(0)])), False)
    assert begun is not None
    sessions.begin(request(begun.session_id, FINAL_EPOCH, ("a", [asked(0)])), False)
    with pytest.raises(FetchSessionError) as refused:
        sessions.begin(request(begun.session_id, 1), False)
    assert fetch_error(refused.value) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, 2**31 - 1])
def test_an_epoch_out_of_turn_is_refused(epoch: int) -> None:
    sessions = FetchSessions(10, 60)
    begun, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("a", [asked(0)])), False)
    assert begun is not None
    with pytest.raises(FetchSessionError) as refused:
        sessions.begin(request(begun.session_id, epoch), False)
    assert fetch_error(refused.value) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_behind_the_last_is_one() -> None:
    sessions = FetchSessions(10, 60)
    begun, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("a", [asked(0)])), False)
    assert begun is not None
    begun.epoch = 2**31 - 1
    sessions.begin(request(begun.session_id, 2**31 - 1), False)
    assert begun.epoch == 1


def test_names_and_ids_do_not_mix_within_a_session() -> None:
    sessions = FetchSessions(10, 60)
    begun, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("a", [asked(0)])), False)
    assert begun is not None
    with pytest.raises(FetchSessionError) as refused:
        sessions.begin(request(begun.session_id, 1), True)
    assert fetch_error(refused.value) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_who_got_records_comes_last_the_next_time() -> None:
    sessions = FetchSessions(10, 60)
    begun, wanted, _ = sessions.begin(
        request(0, FIRST_EPOCH, ("a", [asked(0), asked(1), asked(2)])), False
    )
    assert begun is not None
    begun.move_to_end([wanted[0].key])
    _, wanted, _ = sessions.begin(request(begun.session_id, 1), False)
    assert [row.index for row in wanted] == [1, 2, 0]


def test_a_full_cache_gives_way_only_where_a_session_was_long_unused() -> None:
    async def scene() -> None:
        sessions = FetchSessions(2, 60)
        first, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("a", [asked(0)])), False)
        second, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("b", [asked(0)])), False)
        assert first is not None
        assert second is not None
        none, wanted, _ = sessions.begin(request(0, FIRST_EPOCH, ("c", [asked(0)])), False)
        assert none is None
        assert names(wanted) == [("c", 0, 0)]
        await runtime.sleep(61)
        sessions.begin(request(first.session_id, 1), False)  # used: the other one goes
        third, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("c", [asked(0)])), False)
        assert third is not None
        assert len(sessions) == 2
        with pytest.raises(FetchSessionError):
            sessions.begin(request(second.session_id, 1), False)

    runtime.simulate(scene(), seed=1)


async def test_a_session_that_would_grow_too_large_is_given_up() -> None:
    sessions = FetchSessions(10, 60, partitions_max=3)
    session, _, _ = sessions.begin(request(0, FIRST_EPOCH, ("t", [asked(0), asked(1)])), False)
    assert session is not None
    sessions.begin(request(session.session_id, 1, ("t", [asked(2)])), False)
    with pytest.raises(FetchSessionError) as refused:
        sessions.begin(request(session.session_id, 2, ("t", [asked(3)])), False)
    assert fetch_error(refused.value) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    # It begins anew with all it wants, and is served without a session.
    everything = request(0, FIRST_EPOCH, ("t", [asked(number) for number in range(4)]))
    session, wanted, _ = sessions.begin(everything, False)
    assert session is None
    assert len(wanted) == 4


async def test_a_name_that_no_topic_can_have_is_not_remembered() -> None:
    sessions = FetchSessions(10, 60)
    session, wanted, _ = sessions.begin(request(0, FIRST_EPOCH, ("x" * 250, [asked(0)])), False)
    assert session is None
    assert len(wanted) == 1


def test_all_sessions_together_are_bounded_in_bytes_and_the_unused_make_room() -> None:
    async def check() -> None:
        share = runtime.MemoryShare("sessions", 100 * PARTITION_BYTES)
        sessions = FetchSessions(1_000, 60, share=share)
        rows = [asked(at) for at in range(40)]
        kept = [sessions.begin(request(0, FIRST_EPOCH, ("a", rows)), False)[0] for _ in range(4)]
        assert [each is not None for each in kept] == [True, True, False, False]
        assert share.used <= share.bytes_max
        await runtime.sleep(61)
        assert sessions.begin(request(0, FIRST_EPOCH, ("a", rows)), False)[0] is not None
        assert len(sessions) == 2
        last = next(each for each in kept[1:] if each is not None)
        grown = request(last.session_id, 1, ("b", [asked(at) for at in range(90)]))
        with pytest.raises(FetchSessionError):
            sessions.begin(grown, False)
        assert share.used <= share.bytes_max
        for session_id in list(sessions._sessions):
            sessions.begin(request(session_id, FINAL_EPOCH), False)
        assert (len(sessions), share.used) == (0, 0)

    runtime.simulate(check(), seed=1)
