"""Answers to produce requests: what is written by a form is what field by field gives."""

from __future__ import annotations

import pytest

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


def answer(
    version: int, row: BatchOutcome, acks: int = ACKS_ALL, correlation_id: int = 77
) -> PendingProduce:
    header = RequestHeader(0, version, correlation_id, "c", 0)
    return PendingProduce(
        header, acks, [(TopicName("topic-\x7f", bytes(range(16))), [row])], 0.0, 1_000
    )


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
    view = memoryview(frame)[4:]
    correlation_id, end = decode_response_header(PRODUCE, version, view)
    assert correlation_id == 77
    return PRODUCE.Response.decode(view, version, end).responses[0].partition_responses[0]


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
