"""Memory for objects: it begins at a block, and large ones use theirs again, never too soon."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from neve.log.concat_buffers import concat_buffers
from neve.store import aligned_buffers as module
from neve.store.aligned_buffers import (
    BLOCK_BYTES,
    KEPT_MAX,
    LARGE_BYTES,
    ROUNDED_TO_BYTES,
    MappedBuffers,
    address,
    aligned_buffer,
)
from neve.store.port import Buffer

SIZE = 3 * BLOCK_BYTES
used_again = pytest.mark.skipif(sys.platform != "linux", reason="mappings cannot be resized here")


@pytest.fixture
def mappings(monkeypatch: pytest.MonkeyPatch) -> MappedBuffers:
    monkeypatch.setattr(module, "ROUNDED_TO_BYTES", BLOCK_BYTES)
    return MappedBuffers()


@pytest.mark.parametrize("size", [1, BLOCK_BYTES, 300_001, LARGE_BYTES - 1, LARGE_BYTES + 1])
def test_it_begins_at_a_block_and_has_its_size(size: int) -> None:
    memory = aligned_buffer(size)
    assert address(memory) % BLOCK_BYTES == 0
    assert (memory.nbytes, memory.flags.writeable) == (size, True)


@used_again
def test_a_mapping_is_used_again_when_nobody_has_a_view(mappings: MappedBuffers) -> None:
    memory = mappings.take(SIZE)
    memory[:] = 7
    place = address(memory)
    del memory
    again = mappings.take(SIZE - 1)
    assert address(again) == place
    assert again.flags.writeable
    assert len(again) == SIZE - 1


@used_again
@pytest.mark.parametrize(
    "view",
    [
        lambda memory: memory[5:9],
        lambda memory: memory.data[5:9],
        lambda memory: memory.view(np.int32)[1:2],
        lambda memory: memoryview(memory).cast("B")[5:9],
        lambda memory: memory[:8].reshape(2, 4).data,
    ],
)
def test_a_mapping_of_which_any_view_is_left_stays_as_it_is(
    mappings: MappedBuffers, view: Callable[[npt.NDArray[np.uint8]], Buffer]
) -> None:
    memory = mappings.take(SIZE)
    memory[:] = 7
    place = address(memory)
    left = view(memory)
    del memory
    other = mappings.take(SIZE)
    other[:] = 9
    assert address(other) != place
    assert set(memoryview(left).tobytes()) == {7}
    del left
    assert address(mappings.take(SIZE)) == place, "now it is free"


def test_what_a_forgotten_thread_still_writes_is_not_touched(mappings: MappedBuffers) -> None:
    def write(data: memoryview) -> None:
        go_on.wait(10)
        seen.append(bytes(data[:4]))

    go_on, seen = threading.Event(), list[bytes]()
    memory = mappings.take(SIZE)
    memory[:] = 7
    writer = threading.Thread(target=write, args=(memory.data,))
    writer.start()
    del memory
    mappings.take(SIZE)[:] = 9
    go_on.set()
    writer.join()
    assert seen == [b"\x07" * 4]


@used_again
def test_two_threads_that_ask_at_once_never_get_the_same(
    mappings: MappedBuffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(pages: mmap.mmap) -> bool:
        found = real(pages)
        threading.Event().wait(0.05)
        return found

    def take() -> None:
        taken.append(mappings.take(SIZE))

    mappings.take(SIZE)
    real, taken = module._is_free, list[npt.NDArray[np.uint8]]()
    monkeypatch.setattr(module, "_is_free", slow)
    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert address(taken[0]) != address(taken[1])


@used_again
def test_one_that_is_too_small_makes_room_for_a_larger_one(mappings: MappedBuffers) -> None:
    mappings.take(SIZE)
    mappings.take(2 * SIZE)
    assert [len(pages) for pages in mappings._kept] == [2 * SIZE]


@used_again
def test_no_more_are_kept_than_were_in_use_at_once_and_never_too_many(
    mappings: MappedBuffers,
) -> None:
    in_use = [mappings.take(SIZE) for _ in range(3)]
    for number, memory in enumerate(in_use):
        memory[:] = number
    del in_use[0], memory
    for _ in range(10):
        mappings.take(SIZE)
    assert len(mappings._kept) == 3
    in_use += [mappings.take(SIZE) for _ in range(KEPT_MAX + 5)]
    assert len(mappings._kept) == KEPT_MAX
    assert [memory[0] for memory in in_use[:2]] == [1, 2], "who is not kept has his bytes"


@used_again
def test_what_is_free_is_given_back_when_asked_and_nothing_else(mappings: MappedBuffers) -> None:
    in_use = [mappings.take(SIZE) for _ in range(3)]
    in_use[1][:] = 7
    del in_use[2], in_use[0]
    mappings.give_back_free()
    assert len(mappings._kept) == 1
    mappings.take(SIZE)[:] = 9
    assert set(in_use[0].tolist()) == {7}


@pytest.mark.parametrize("error", [SystemError("no mremap()"), AttributeError("resize")])
def test_where_nothing_can_be_resized_nothing_is_used_again_nor_kept(
    mappings: MappedBuffers, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Fixed(mmap.mmap):
        def resize(self, newsize: int) -> None:
            raise error

    monkeypatch.setattr(module.mmap, "mmap", Fixed)
    in_use = [mappings.take(SIZE) for _ in range(3)]
    assert len({address(memory) for memory in in_use}) == 3
    assert mappings._kept == [], "each goes with its last view"


def test_a_kernel_without_huge_pages_has_mappings_all_the_same(
    mappings: MappedBuffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(module.mmap, "mmap", Plain)
    assert mappings.take(SIZE).nbytes == SIZE


@used_again
def test_a_segment_is_gathered_in_a_mapping_that_the_next_one_gets() -> None:
    parts = [bytes([n]) * (1024 * 1024) for n in range(18)]
    whole = concat_buffers(parts)
    assert whole == b"".join(parts)
    place = address(np.frombuffer(whole, np.uint8))
    beside = concat_buffers(parts[::-1])
    assert whole == b"".join(parts), "another one at the same time has another place"
    assert whole.readonly
    assert beside.readonly
    del whole
    third = concat_buffers([*parts, bytes(ROUNDED_TO_BYTES // 2)])
    assert address(np.frombuffer(third, np.uint8)) == place
