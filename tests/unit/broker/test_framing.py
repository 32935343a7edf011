"""Frames are cut right however the bytes arrive, and buffers come back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.broker.buffers import BufferPool
from neve.broker.framing import LARGE_BYTES, RECEIVE_BYTES_MIN, SCRATCH_BYTES, Framing, Scratch
from neve.protocol.errors import MalformedError

BYTES_MAX = 4 * 1024 * 1024


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def body(size: int, seed: int = 0) -> bytes:
    return bytes((seed + index) % 251 for index in range(251)) * (size // 251 + 1)


def feed(framing: Framing, data: bytes, cuts: list[int]) -> list[bytes]:
    """Give the bytes in pieces, each at most as large as there is space."""
    found: list[bytes] = []
    position, at = 0, 0
    while position < len(data):
        space = framing.receive_space()
        step = min(len(space), cuts[at % len(cuts)] if cuts else len(space), len(data) - position)
        at += 1
        space[:step] = data[position : position + step]
        position += step
        framing.received(step)
        while (frame := framing.next()) is not None:
            found.append(bytes(frame.data))
            if frame.buffer is not None:
                framing._scratch.pool.give(frame.buffer)
        framing.settle()
        # Another connection uses the scratch in between.
        framing._scratch.buffer[:] = b"\xee" * SCRATCH_BYTES
    return found


SIZES = st.one_of(
    st.integers(1, 300),
    st.sampled_from([LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1]),
    st.integers(SCRATCH_BYTES - 8, SCRATCH_BYTES + 8),
    st.integers(1, 300_000),
)


@settings(deadline=None)
@given(
    st.lists(SIZES, min_size=1, max_size=6),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=8),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sizes: list[int], cuts: list[int]
) -> None:
    bodies = [body(size, index)[:size] for index, size in enumerate(sizes)]
    pool = BufferPool(1024 * 1024)
    framing = Framing(Scratch(pool), BYTES_MAX)
    cuts = [max(cut, sum(sizes) // 500 + 1) for cut in cuts]
    assert feed(framing, framed(*bodies), cuts) == bodies
    assert not framing.pending
    assert pool.used_bytes == 0


@pytest.mark.parametrize("length", [0, -1, -(2**31), BYTES_MAX + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_before_anything_is_allocated(length: int) -> None:
    pool = BufferPool(0)
    framing = Framing(Scratch(pool), BYTES_MAX)
    space = framing.receive_space()
    space[:4] = struct.pack(">i", length)
    framing.received(4)
    with pytest.raises(MalformedError):
        framing.next()
    assert pool.used_bytes == 0


def test_a_connection_that_ends_within_a_large_frame_gives_its_buffer_back() -> None:
    pool = BufferPool(1024 * 1024)
    framing = Framing(Scratch(pool), BYTES_MAX)
    space = framing.receive_space()
    space[:4] = struct.pack(">i", 100_000)
    framing.received(4)
    assert framing.next() is None
    assert pool.used_bytes > 0
    framing.close()
    assert pool.used_bytes == 0


def test_what_had_to_wait_is_cut_later_from_what_was_kept() -> None:
    framing = Framing(Scratch(BufferPool(0)), BYTES_MAX)
    data = framed(b"first", b"second")
    framing.receive_space()[: len(data)] = data
    framing.received(len(data))
    assert bytes(framing.next().data) == b"first"  # type: ignore[union-attr]
    framing.settle()
    framing._scratch.buffer[:] = bytes(SCRATCH_BYTES)
    assert framing.pending
    framing.resume()
    assert bytes(framing.next().data) == b"second"  # type: ignore[union-attr]
    framing.settle()
    assert not framing.pending


def test_the_pool_hands_the_same_buffer_out_again_and_keeps_no_more_than_its_bound() -> None:
    pool = BufferPool(128 * 1024)
    first = pool.take(100_000)
    assert len(first) == 128 * 1024
    pool.give(first)
    assert pool.take(70_000) is first
    second = pool.take(70_000)
    pool.give(first)
    pool.give(second)
    assert pool.idle_bytes == 128 * 1024
    assert pool.used_bytes == 0


def test_asking_for_space_and_receiving_nothing_loses_nothing() -> None:
    framing = Framing(Scratch(BufferPool(0)), BYTES_MAX)
    data = framed(b"whole", b"in two pieces")
    first, rest = data[:15], data[15:]
    framing.receive_space()[: len(first)] = first
    framing.received(len(first))
    assert bytes(framing.next().data) == b"whole"  # type: ignore[union-attr]
    assert framing.next() is None
    framing.settle()
    # The loop asks, the socket turns out to be empty, and another connection uses the scratch.
    framing.receive_space()
    framing._scratch.buffer[:] = b"\xee" * SCRATCH_BYTES
    framing.receive_space()[: len(rest)] = rest
    framing.received(len(rest))
    assert bytes(framing.next().data) == b"in two pieces"  # type: ignore[union-attr]


def begun(scratch: Scratch, length: int) -> Framing:
    """A connection that has sent the length of a frame and its first byte."""
    framing = Framing(scratch, BYTES_MAX)
    framing.receive_space()[:5] = struct.pack(">ib", length, 7)
    framing.received(5)
    assert framing.next() is None
    framing.settle()
    return framing


def test_large_frames_wait_while_too_much_is_being_received_and_one_always_passes() -> None:
    scratch = Scratch(BufferPool(0), receiving_bytes_max=256 * 1024)
    told: list[int] = []
    scratch.on_room = lambda: told.append(scratch.receiving_bytes)
    alone = begun(scratch, 1_000_000)
    assert not alone.awaited_bytes
    waiting = begun(scratch, 100_000)
    assert waiting.awaited_bytes == 100_000
    assert waiting.pending
    alone.close()
    assert told == [0]
    waiting.resume()
    assert waiting.next() is None
    assert not waiting.awaited_bytes
    assert scratch.receiving_bytes == 128 * 1024
    rest = 99_999
    while rest:
        space = waiting.receive_space()
        rest -= len(space)
        waiting.received(len(space))
    frame = waiting.next()
    assert frame is not None
    assert len(frame.data) == 100_000
    assert frame.data[0] == 7
    assert scratch.receiving_bytes == 0


def test_where_much_is_kept_little_is_received_from_each_at_a_time() -> None:
    scratch = Scratch(BufferPool(0), receiving_bytes_max=512 * 1024)
    large = begun(scratch, 500_000)
    halves = []
    for _ in range(100):
        framing = Framing(scratch, BYTES_MAX)
        space = framing.receive_space()
        space[:4] = struct.pack(">i", 200_000)  # there is no buffer for it
        framing.received(len(space))
        assert framing.next() is None
        framing.settle()
        halves.append(framing)
    held = [framing.kept_bytes for framing in halves]
    assert held[:2] == [SCRATCH_BYTES] * 2
    assert set(held[2:]) == {RECEIVE_BYTES_MIN}
    assert scratch.kept.used == sum(held)
    for framing in (large, *halves):
        framing.close()
    assert scratch.kept.used == 0


def test_what_is_kept_of_small_requests_leaves_large_ones_less_room() -> None:
    scratch = Scratch(BufferPool(0), receiving_bytes_max=512 * 1024)
    large = begun(scratch, 200_000)
    assert scratch.has_room(200_000)
    small = Framing(scratch, BYTES_MAX)
    space = small.receive_space()
    space[:4] = struct.pack(">i", 10_000)
    small.received(10_000)
    assert small.next() is None
    small.settle()
    assert scratch.kept.used == 10_000
    assert not scratch.has_room(200_000)
    large.close()
    assert scratch.has_room(200_000), "one always passes"
    small.close()
