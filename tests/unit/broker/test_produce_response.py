"""Answers to produce requests: what is written by a form is what field by field gives."""

from __future__ import annotations

from typing import Any

import pytest

from neve.broker.admin.cluster import BrokerAddress, CurrentLeader
from neve.broker.produce_response import (
    ACKS_ALL,
    ACKS_LEADER,
    BatchOutcome,
    PendingProduce,
    TopicName,
)
from neve.errors import FencedError
from neve.log.wal.pending import Commit
from neve.protocol.frames import RequestHeader, decode_response_header
from neve.protocol.messages.produce import PRODUCE
from support.scripted_store import in_simulation

VERSIONS = range(PRODUCE.min_version, PRODUCE.max_version + 1)
# Numbers that take all of their bytes, and none.
NUMBERS = (0, 1, 0x7FFF_FFFF, 0x0102_0304_0506_0708, 2**63 - 1)
TOPIC = TopicName("topic-\x7f", bytes(range(16)))


class Leaders:
    """Broker 4 leads partition 3 of the topic, by its name or by its id."""

    def find_leader(self, name: str, topic_id: bytes | None, number: int) -> CurrentLeader:
        assert number == 3
        assert name == TOPIC.name if topic_id is None else topic_id == TOPIC.topic_id
        return CurrentLeader(BrokerAddress(4, "h4", 9094, "r"), 17)


LEADERS: Any = Leaders()


def answer(
    version: int, row: BatchOutcome, acks: int = ACKS_ALL, correlation_id: int = 77
) -> PendingProduce:
    header = RequestHeader(0, version, correlation_id, "c", 0)
    request = PRODUCE.Request(acks=acks, timeout_ms=1_000)
    return PendingProduce(header, request, [(TOPIC, [row])], 0.0, LEADERS)


def decided(failure: FencedError | None = None) -> Commit:
    commit = Commit()
    if failure is None:
        commit.succeed()
    else:
        commit.fail(failure)
    return commit


@pytest.mark.parametrize("version", VERSIONS)
@in_simulation
async def test_a_form_gives_the_bytes_that_encoding_gives(version: int) -> None:
    for number in NUMBERS:
        for acks in (ACKS_ALL, ACKS_LEADER):
            row = BatchOutcome(
                number % 1_000, decided(), base_offset=number, start_offset=number // 2
            )
            made = answer(version, row, acks, correlation_id=number % 2**31)
            assert b"".join(made.frame()) == b"".join(made._encoded())


@pytest.mark.parametrize("version", VERSIONS)
@in_simulation
async def test_what_is_not_plain_is_told_in_full(version: int) -> None:
    """An error, a failed commit, a time of the append: none of them is lost to a form."""
    plain = BatchOutcome(3, decided(), base_offset=5, start_offset=1)
    failed = plain._replace(commit=decided(FencedError("it is over")))
    late = answer(version, plain._replace(commit=Commit()))
    late.time_out()
    for made, code, offset, time in (
        (answer(version, plain._replace(append_time_ms=9)), 0, 5, 9),
        (answer(version, failed), 6, -1, -1),
        (answer(version, BatchOutcome(3, None, error=3)), 3, -1, -1),
        (late, 7, -1, -1),
        (answer(version, plain), 0, 5, -1),
    ):
        told = _decoded(b"".join(made.frame()), version)
        assert (told.index, told.error_code) == (3, code)
        if code == 0:
            assert told.base_offset == offset
            assert told.log_append_time_ms == (time if version >= 2 else -1)


def _decoded(frame: bytes, version: int) -> PRODUCE.Response.Partition:
    return _response(frame, version).responses[0].partition_responses[0]


def _response(frame: bytes, version: int) -> PRODUCE.Response:
    view = memoryview(frame)[4:]
    correlation_id, end = decode_response_header(PRODUCE, version, view)
    assert correlation_id == 77
    return PRODUCE.Response.decode(view, version, end)


@pytest.mark.parametrize("version", VERSIONS)
@in_simulation
async def test_the_new_leader_is_named_where_the_old_one_refuses(version: int) -> None:
    plain = BatchOutcome(3, decided(), base_offset=5, start_offset=1)
    failed = plain._replace(commit=decided(FencedError("it is over")))
    late = answer(version, plain._replace(commit=Commit()))
    late.time_out()
    for made, named in (
        (answer(version, failed), True),
        (answer(version, failed, ACKS_LEADER), False),
        (answer(version, failed._replace(in_doubt=True), ACKS_LEADER), True),
        (answer(version, BatchOutcome(3, None, error=6)), True),
        (answer(version, BatchOutcome(3, None, error=74)), True),
        (answer(version, BatchOutcome(3, None, error=3)), False),
        (answer(version, plain._replace(append_time_ms=9)), False),
        (answer(version, plain), False),
        (late, False),
    ):
        told = _response(b"".join(made.frame()), version)
        leader = told.responses[0].partition_responses[0].current_leader
        nodes = [(each.node_id, each.host, each.port, each.rack) for each in told.node_endpoints]
        if named and version >= 10:
            assert (leader.leader_id, leader.leader_epoch) == (4, 17)
            assert nodes == [(4, "h4", 9094, "r")]
        else:
            assert (leader.leader_id, leader.leader_epoch, nodes) == (-1, -1, [])


@in_simulation
async def test_answers_are_alike_only_with_the_same_moment_and_outcome() -> None:
    plain = BatchOutcome(0, decided(), base_offset=1)
    first = answer(9, plain)
    assert first.is_like(answer(9, plain))
    assert not first.is_like(answer(9, plain, ACKS_LEADER))
    refused = answer(9, BatchOutcome(0, None, error=3))
    assert not first.is_like(refused)
    first.started = 1.0
    assert not first.is_like(answer(9, plain))
