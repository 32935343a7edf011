"""Past the cache: every byte arrives, there and back, whatever the system takes this way."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from neve.store import files
from neve.store.aligned_buffers import BLOCK_BYTES, aligned_buffer
from neve.store.files import STEP_BYTES, read_blocks, write_blocks
from neve.store.folder import READ_STEP_BYTES, UNCACHED_BYTES, FolderStore

SIZES = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 300_001, 3 * 1024 * 1024]


def filled(size: int) -> memoryview:
    memory = aligned_buffer(size)
    memory[:] = [n % 251 for n in range(size)]
    memory.flags.writeable = False
    return memory.data


@pytest.fixture
def taken_directly(tmp_path: Path) -> None:
    """Skips where this machine's temporary files cannot be written so."""
    try:
        os.close(os.open(tmp_path / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644))
    except (AttributeError, OSError) as error:
        pytest.skip(f"{tmp_path} takes no direct writes: {error}")


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT, 0o644)
    yield opened
    os.close(opened)


def refuse(*_: object) -> int | None:
    """What a file system says that knows no direct way."""
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def refuse_the_flag(patch: pytest.MonkeyPatch) -> None:
    set_flag = fcntl.fcntl
    patch.setattr(fcntl, "fcntl", lambda d, c, flag=0: refuse() if flag else set_flag(d, c, flag))


class Writes:
    """Records how much each write was asked for and whether it was a direct one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, bool]] = []
        self.answer: Callable[[int], int | None] = lambda _: None
        self._write = os.write
        patch.setattr(os, "write", self._call)

    def _call(self, descriptor: int, data: memoryview) -> int:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        self.made.append((len(data), bool(flags & files._DIRECT)))
        count = self.answer(len(self.made))
        return self._write(descriptor, data if count is None else data[:count])


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Writes]:
    with monkeypatch.context() as patch:
        yield Writes(patch)


@pytest.mark.usefixtures("taken_directly")
@pytest.mark.parametrize("size", SIZES)
def test_whole_blocks_are_written_and_the_rest_is_left(
    size: int, descriptor: int, tmp_path: Path
) -> None:
    data = filled(size)
    written = write_blocks(descriptor, data)
    assert written == size // BLOCK_BYTES * BLOCK_BYTES
    assert (tmp_path / "file").read_bytes() == data[:written]


def test_what_does_not_begin_at_a_block_is_left(descriptor: int, writes: Writes) -> None:
    assert write_blocks(descriptor, filled(2 * BLOCK_BYTES)[1:]) == 0
    assert writes.made == []


@pytest.mark.usefixtures("taken_directly")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_is_told_and_not_taken_for_a_refusal(
    code: int, descriptor: int, writes: Writes
) -> None:
    def fails(_: int) -> None:
        raise OSError(code, os.strerror(code))

    writes.answer = fails
    with pytest.raises(OSError, match=os.strerror(code)):
        write_blocks(descriptor, filled(BLOCK_BYTES))


def test_a_system_without_such_writes_is_not_asked(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_DIRECT", 0)
    assert write_blocks(descriptor, filled(BLOCK_BYTES)) == 0


@pytest.mark.parametrize("size", SIZES)
async def test_an_object_of_a_folder_is_whole(size: int, tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.create("k", filled(size))
    assert await store.get("k") == filled(size)


@pytest.mark.usefixtures("taken_directly")
async def test_a_large_object_is_written_directly_but_for_its_end(
    tmp_path: Path, writes: Writes
) -> None:
    store = FolderStore(tmp_path)
    await store.create("k", filled(UNCACHED_BYTES))
    assert writes.made == [(UNCACHED_BYTES, True)]
    await store.create("l", filled(UNCACHED_BYTES + 5))
    assert writes.made[1:] == [(UNCACHED_BYTES, True), (5, False)]


async def test_lengths_are_counted_in_bytes_whatever_a_buffer_counts(tmp_path: Path) -> None:
    numbers = aligned_buffer(2 * STEP_BYTES * 4).view(np.int32)
    numbers[:] = np.arange(len(numbers))
    await FolderStore(tmp_path).create("k", numbers.data)
    assert (tmp_path / "k").read_bytes() == numbers.tobytes()


@pytest.mark.usefixtures("taken_directly")
async def test_an_object_does_not_fill_the_queue_of_the_disk(
    tmp_path: Path, writes: Writes
) -> None:
    await FolderStore(tmp_path).create("k", filled(2 * STEP_BYTES + BLOCK_BYTES))
    assert writes.made == [(STEP_BYTES, True), (STEP_BYTES, True), (BLOCK_BYTES, True)]


async def test_small_objects_and_those_that_nobody_syncs_go_through_the_cache(
    tmp_path: Path, writes: Writes
) -> None:
    await FolderStore(tmp_path).create("small", filled(UNCACHED_BYTES - 1))
    await FolderStore(tmp_path, fsync=False).create("unsynced", filled(UNCACHED_BYTES))
    assert writes.made == [(UNCACHED_BYTES - 1, False), (UNCACHED_BYTES, False)]


@pytest.mark.usefixtures("taken_directly")
@pytest.mark.parametrize("refused", ["the flag", "the first write", "a later write"])
async def test_where_a_file_system_refuses_the_object_is_whole_all_the_same(
    refused: str, tmp_path: Path, writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 2 * UNCACHED_BYTES

    if refused == "the flag":
        refuse_the_flag(monkeypatch)
    elif refused == "the first write":
        writes.answer = lambda number: refuse() if number == 1 else None
    else:
        writes.answer = lambda number: (
            refuse() if number == 2 else [BLOCK_BYTES, None, None][number - 1]
        )
    await FolderStore(tmp_path).create("k", filled(size))
    assert (tmp_path / "k").read_bytes() == filled(size)
    assert not writes.made[-1][1]


@pytest.mark.usefixtures("taken_directly")
async def test_short_writes_go_on_where_they_ended(tmp_path: Path, writes: Writes) -> None:
    writes.answer = lambda _: BLOCK_BYTES
    await FolderStore(tmp_path).create("k", filled(UNCACHED_BYTES))
    assert (tmp_path / "k").read_bytes() == filled(UNCACHED_BYTES)
    asked = range(UNCACHED_BYTES, 0, -BLOCK_BYTES)
    assert writes.made == [(size, True) for size in asked]


@pytest.mark.usefixtures("taken_directly")
async def test_a_file_whose_blocks_cannot_be_written_is_written_anew(
    tmp_path: Path, writes: Writes
) -> None:
    def broken(number: int) -> None:
        if number == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    writes.answer = broken
    await FolderStore(tmp_path).create("k", filled(UNCACHED_BYTES))
    assert (tmp_path / "k").read_bytes() == filled(UNCACHED_BYTES)
    assert writes.made == [(UNCACHED_BYTES, True), (UNCACHED_BYTES, True)]
    assert not list((tmp_path / ".tmp").iterdir())


class Reads:
    """Records where each read began, for how much it asked, and whether it was a direct one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, int, bool]] = []
        self.answer: Callable[[int], int | None] = lambda _: None
        self._preadv = os.preadv
        patch.setattr(os, "preadv", self._call)

    def _call(self, descriptor: int, buffers: list[memoryview], offset: int) -> int:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        self.made.append((offset, len(buffers[0]), bool(flags & files._DIRECT)))
        count = self.answer(len(self.made))
        whole = buffers[0] if count is None else buffers[0][:count]
        return self._preadv(descriptor, [whole], offset)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    with monkeypatch.context() as patch:
        yield Reads(patch)


FILE_BYTES = 3 * STEP_BYTES + BLOCK_BYTES + 7
CONTENT = bytes(range(251)) * (FILE_BYTES // 251) + bytes(FILE_BYTES % 251)
RANGES = [
    (0, FILE_BYTES),
    (0, BLOCK_BYTES),
    (1, 2),
    (BLOCK_BYTES - 1, BLOCK_BYTES + 1),
    (5, 2 * STEP_BYTES),
    (STEP_BYTES, FILE_BYTES - 1),
    (FILE_BYTES - 1, FILE_BYTES),
    (FILE_BYTES - 7, FILE_BYTES),
]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.mark.usefixtures("taken_directly")
@pytest.mark.parametrize(("start", "end"), RANGES)
def test_any_range_is_read_directly(start: int, end: int, written: int, reads: Reads) -> None:
    data, count = read_blocks(written, start, end)
    assert count == len(data) == end - start
    assert data == CONTENT[start:end]
    assert all(is_direct for _, _, is_direct in reads.made)
    assert not fcntl.fcntl(written, fcntl.F_GETFL) & files._DIRECT


@pytest.mark.usefixtures("taken_directly")
def test_a_read_does_not_fill_the_queue_of_the_disk(written: int, reads: Reads) -> None:
    read_blocks(written, BLOCK_BYTES + 1, BLOCK_BYTES + 2 * STEP_BYTES + 1)
    assert reads.made == [
        (BLOCK_BYTES, STEP_BYTES, True),
        (BLOCK_BYTES + STEP_BYTES, STEP_BYTES, True),
        (BLOCK_BYTES + 2 * STEP_BYTES, BLOCK_BYTES, True),
    ]


@pytest.mark.usefixtures("taken_directly")
def test_a_file_that_has_become_shorter_gives_what_it_has(written: int, tmp_path: Path) -> None:
    for size in (STEP_BYTES + 9, 5):
        os.truncate(tmp_path / "file", size)
        data, count = read_blocks(written, 5, FILE_BYTES)
        assert count == size - 5
        assert data[:count] == CONTENT[5:size]


@pytest.mark.usefixtures("taken_directly")
def test_a_read_that_fails_is_told_and_not_taken_for_a_refusal(written: int, reads: Reads) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    reads.answer = broken
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        read_blocks(written, 0, FILE_BYTES)


def test_a_system_without_such_reads_is_not_asked(
    written: int, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_DIRECT", 0)
    data, count = read_blocks(written, 3, FILE_BYTES)
    assert (len(data), count, reads.made) == (FILE_BYTES - 3, 0, [])


@pytest.mark.usefixtures("taken_directly")
@pytest.mark.parametrize("refused", ["the flag", "the first read", "a later read", "a short one"])
async def test_where_a_file_system_refuses_the_range_is_whole_all_the_same(
    refused: str, tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refused == "the flag":
        refuse_the_flag(monkeypatch)
    elif refused == "the first read":
        reads.answer = lambda number: refuse() if number == 1 else None
    elif refused == "a later read":
        reads.answer = lambda number: refuse() if number == 3 else None
    else:  # a direct read that ended within a block: nothing can follow it
        reads.answer = lambda number: BLOCK_BYTES + 9 if number == 1 else None
    store = FolderStore(tmp_path)
    await store.put("k", CONTENT)
    assert await store.get_range("k", 1, FILE_BYTES) == CONTENT[1:]
    assert not reads.made[-1][2], "the rest was read as usual"


@pytest.mark.usefixtures("taken_directly")
async def test_who_writes_and_syncs_reads_large_ranges_directly(
    tmp_path: Path, reads: Reads
) -> None:
    def directly() -> bool:
        is_direct = {is_direct for _, _, is_direct in reads.made}
        reads.made.clear()
        (only,) = is_direct
        return only

    writer = FolderStore(tmp_path)
    await writer.put("k", CONTENT)
    assert await writer.get("k") == CONTENT
    assert directly()
    assert (await writer.get("k")).readonly
    assert directly()
    await writer.get_range("k", 0, READ_STEP_BYTES)
    assert not directly(), "it is small"
    assert await FolderStore(tmp_path).get("k") == CONTENT
    assert not directly(), "who only reads has the cache"
    unsynced = FolderStore(tmp_path, fsync=False)
    await unsynced.put("l", CONTENT)
    assert await unsynced.get("l") == CONTENT
    assert not directly(), "what nobody synced is in the cache"
