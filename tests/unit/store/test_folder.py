"""The local folder: the contract, what is synced in which order, and what if that fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neve import runtime
from neve.errors import ExistsError, InvalidError, NotFoundError, StoreFailedError, UnavailableError
from neve.store import folder
from neve.store.folder import READ_STEP_BYTES, UNCACHED_BYTES, FolderStore
from support.store_contract import StoreContract, StoreFactory


class TestFolderStore(StoreContract):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        return lambda: FolderStore(tmp_path / "made" / "later")


class TestFolderStoreWithoutFsync(StoreContract):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        return lambda: FolderStore(tmp_path / "store", fsync=False)


class Calls:
    """Records the calls that matter for durability, and lets some of them fail."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.made: list[str] = []
        self.fails: Callable[[str], int | None] = lambda call: None
        for name in ("fsync", "link", "replace", "mkdir", "unlink", "posix_fadvise"):
            patch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object, **kwargs: object) -> None:
            about = args[: 2 if name in {"link", "replace"} else 1]
            told = " ".join([name, *(self._shown(argument) for argument in about)])
            self.made.append(told)
            code = self.fails(told)
            if code is not None:
                raise OSError(code, os.strerror(code))
            real(*args, **kwargs)

        return call

    def _shown(self, argument: object) -> str:
        path = Path(str(argument))
        if isinstance(argument, int):
            path = Path(f"/proc/self/fd/{argument}").readlink()
        shown = os.path.relpath(path, self.root)
        return ".tmp/*" if shown.startswith(".tmp/") else shown

    def take(self, *, above: bool = False) -> list[str]:
        """The calls since the last time, without those on folders above unless asked."""
        made, self.made = self.made, []
        return [call for call in made if above or not call.startswith("fsync ..")]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    with monkeypatch.context() as patch:
        yield Calls(tmp_path, patch)


def failing(match: str, code: int, times: int) -> Callable[[str], int | None]:
    left = [times]

    def fails(call: str) -> int | None:
        if call != match or not left[0]:
            return None
        left[0] -= 1
        return code

    return fails


async def test_a_create_syncs_file_then_links_then_syncs_folders(
    tmp_path: Path, calls: Calls
) -> None:
    store = FolderStore(tmp_path)
    await store.create("wal/1/a", b"x")
    made = calls.take()
    assert made == [
        "mkdir .tmp",
        "fsync .",
        "fsync .tmp/*",
        "link .tmp/* wal/1/a",
        "mkdir wal",
        "fsync .",
        "mkdir wal/1",
        "fsync wal",
        "link .tmp/* wal/1/a",
        "unlink .tmp/*",
        "fsync .",
        "fsync wal",
        "fsync wal/1",
    ]
    await store.create("wal/1/b", b"x")
    assert calls.take() == [
        "fsync .tmp/*",
        "link .tmp/* wal/1/b",
        "unlink .tmp/*",
        "fsync wal/1",
    ]


async def test_a_put_syncs_then_renames_then_syncs(tmp_path: Path, calls: Calls) -> None:
    store = FolderStore(tmp_path)
    await store.put("k", b"1")
    calls.take()
    await store.put("k", b"2")
    made = [call for call in calls.take() if not call.startswith("unlink")]
    assert made == ["fsync .tmp/*", "replace .tmp/* k", "fsync ."]


async def test_a_large_object_leaves_the_cache_once_it_is_synced(
    tmp_path: Path, calls: Calls
) -> None:
    store = FolderStore(tmp_path)
    await store.put("k", b"1")
    calls.take()
    await store.put("k", bytes(UNCACHED_BYTES))
    made = [call for call in calls.take() if not call.startswith("unlink")]
    assert made == ["fsync .tmp/*", "posix_fadvise .tmp/*", "replace .tmp/* k", "fsync ."]
    calls.fails = failing("posix_fadvise .tmp/*", errno.EINVAL, 1)
    await store.put("k", bytes(UNCACHED_BYTES))  # it is advice
    assert await store.get("k") == bytes(UNCACHED_BYTES)


async def test_who_writes_reads_in_steps_and_no_further_than_asked(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        asked.append((offset, len(buffers[0])))
        return real(descriptor, buffers, offset)

    asked, real = list[tuple[int, int]](), os.preadv
    monkeypatch.setattr(os, "preadv", preadv)
    step = READ_STEP_BYTES
    data = bytes(range(251)) * (2 * step // 251 + 1)
    writer = FolderStore(tmp_path, fsync=False)
    await writer.put("k", data)
    calls.take()
    assert await writer.get_range("k", 5, 5 + 2 * step) == data[5 : 5 + 2 * step]
    assert (calls.take(), asked) == (["posix_fadvise k"], [(5, step), (5 + step, step)])
    assert await writer.get("k") == data
    assert calls.take() == ["posix_fadvise k"]
    assert await writer.get_range("k", 5, 5 + step) == data[5 : 5 + step]
    assert calls.take() == [], "one step"
    calls.fails = failing("posix_fadvise k", errno.EINVAL, 1)
    assert await writer.get("k") == data, "it is advice"
    calls.take()
    asked.clear()
    assert await FolderStore(tmp_path, fsync=False).get("k") == data
    assert (calls.take(), asked) == ([], [(0, len(data))]), "who only reads reads all at once"


async def test_reads_that_come_short_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.preadv
    data = bytes(range(251)) * 8_000
    store = FolderStore(tmp_path, fsync=False)
    await store.put("k", data)
    monkeypatch.setattr(os, "preadv", lambda d, buffers, at: real(d, [buffers[0][:10_007]], at))
    assert await store.get("k") == data
    assert (
        await FolderStore(tmp_path, fsync=False).get_range("k", 3, 1_500_000) == data[3:1_500_000]
    )
    assert (await store.get("k")).readonly


@pytest.mark.parametrize("fsync", [True, False])
async def test_a_file_that_gets_shorter_while_it_is_read_gives_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    def preadv(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        os.truncate(tmp_path / "k", left)
        return real(descriptor, buffers, offset)

    real, left = os.preadv, READ_STEP_BYTES + 9
    data = bytes(range(251)) * (3 * READ_STEP_BYTES // 251)
    writer = FolderStore(tmp_path, fsync=fsync)
    for store in (writer, FolderStore(tmp_path, fsync=fsync)):
        await writer.put("k", data)
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", preadv)
            assert await store.get_range("k", 5, len(data)) == data[5:left]


async def test_a_delete_is_synced(tmp_path: Path, calls: Calls) -> None:
    store = FolderStore(tmp_path)
    await store.put("a/k", b"1")
    calls.take()
    await store.delete("a/k")
    assert calls.take() == ["unlink a/k", "fsync a"]


async def test_nothing_is_synced_when_turned_off(tmp_path: Path, calls: Calls) -> None:
    store = FolderStore(tmp_path / "new", fsync=False)
    await store.create("a/k", b"1")
    await store.put("a/k", b"2")
    await store.get("a/k")
    await store.list("")
    await store.delete("a/k")
    assert [call for call in calls.take() if call.startswith("fsync")] == []


async def test_a_file_whose_sync_fails_is_written_anew(tmp_path: Path, calls: Calls) -> None:
    store = FolderStore(tmp_path)
    await store.create("before", b"x")
    calls.take()
    calls.fails = failing("fsync .tmp/*", errno.EIO, times=1)
    await store.create("k", b"x")
    assert calls.take() == [
        "fsync .tmp/*",
        "unlink .tmp/*",
        "fsync .tmp/*",
        "link .tmp/* k",
        "unlink .tmp/*",
        "fsync .",
    ]
    assert await store.get("k") == b"x"


async def test_a_file_that_can_never_be_synced_is_told_and_gone(
    tmp_path: Path, calls: Calls
) -> None:
    store = FolderStore(tmp_path)
    calls.fails = failing("fsync .tmp/*", errno.EIO, times=99)
    with pytest.raises(StoreFailedError):
        await store.create("k", b"x")
    assert list((tmp_path / ".tmp").iterdir()) == []
    assert list(await store.list("")) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_does_not_pass(tmp_path: Path, calls: Calls, code: int) -> None:
    store = FolderStore(tmp_path)
    calls.fails = failing("fsync .tmp/*", code, times=1)
    with pytest.raises(StoreFailedError, match="free some space"):
        await store.create("k", b"x")
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
async def test_a_folder_that_may_not_be_written_does_not_pass(
    tmp_path: Path, calls: Calls, code: int
) -> None:
    store = FolderStore(tmp_path)
    calls.fails = failing("fsync .tmp/*", code, times=1)
    with pytest.raises(StoreFailedError, match="allow this process to write there"):
        await store.create("k", b"x")


@pytest.mark.parametrize("root", ["file", "file/below"])
async def test_a_file_in_place_of_the_folder_does_not_pass(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderStore(tmp_path / root)
    with pytest.raises(StoreFailedError, match="a file is in place of a folder"):
        await store.create("k", b"x")


async def test_where_no_folder_can_be_made_that_is_the_reason() -> None:
    store = FolderStore(Path("/proc/neve-data"))
    with pytest.raises(StoreFailedError, match="cannot create a folder there") as failure:
        await store.create("k", b"x")
    assert "removed" not in str(failure.value)


async def test_a_folder_that_could_not_be_synced_ends_the_store(
    tmp_path: Path, calls: Calls
) -> None:
    """The kernel may report a lost write once and then count the lost names as clean."""
    store = FolderStore(tmp_path)
    await store.create("a/before", b"x")
    calls.fails = failing("fsync a", errno.EIO, times=1)
    with pytest.raises(StoreFailedError, match="cannot sync"):
        await store.create("a/k", b"x")
    assert await store.get("a/before") == b"x"  # synced before that
    for one in (store, FolderStore(tmp_path)):  # a second process, or this one started again
        with pytest.raises(StoreFailedError):
            await one.get("a/k")
        with pytest.raises(StoreFailedError):
            await one.create("a/k", b"y")
        with pytest.raises(StoreFailedError):
            await one.list("a/")
    await store.remove_stale_temporary(age_ms=0)
    (tmp_path / ".tmp" / "sync-failed").unlink()
    assert await FolderStore(tmp_path).get("a/k") == b"x"


async def test_a_folder_that_cannot_be_opened_leaves_a_create_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    await store.create("a/before", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", out_of_descriptors_in(tmp_path / "a"))
        with pytest.raises(UnavailableError):
            await store.create("a/k", b"x")
        with pytest.raises(UnavailableError):  # it is there, and may not stay: not yet a refusal
            await store.create("a/k", b"y")
    assert await store.get("a/k") == b"x"
    with pytest.raises(ExistsError):
        await store.create("a/k", b"y")


def out_of_descriptors_in(folder: Path) -> Callable[..., int]:
    """Stands in for `os.open`, and fails for this folder."""
    real = os.open

    def opened(path: Path, *args: int) -> int:
        if Path(path) == folder:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *args)

    return opened


async def test_the_root_and_what_is_above_it_get_durable_names_after_a_crash(
    tmp_path: Path, calls: Calls
) -> None:
    """A crash between making the folders and syncing them left names that only the cache has."""
    root = tmp_path / "made" / "root"
    root.mkdir(parents=True)
    calls.root = root
    calls.take(above=True)
    store = FolderStore(root)
    await store.create("a/k", b"x")
    made = calls.take(above=True)
    above = [made.index("fsync ../.."), made.index("fsync ..")]
    assert above == sorted(above)
    assert above[1] < made.index("fsync a")
    await store.create("a/l", b"x")
    assert not [call for call in calls.take(above=True) if call.startswith("fsync ..")]


async def test_a_folder_above_that_may_not_be_opened_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    real = os.open

    def opened(path: Path, *args: int) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *args)

    monkeypatch.setattr(os, "open", opened)
    store = FolderStore(tmp_path / "root")
    await store.create("k", b"x")
    assert await store.get("k") == b"x"


async def test_a_refusal_counts_only_after_a_sync(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "k").write_bytes(b"linked by another process, which died before its sync")
    store = FolderStore(tmp_path)
    calls.take()
    with pytest.raises(ExistsError):
        await store.create("a/k", b"x")
    assert calls.take()[-4:] == ["link .tmp/* a/k", "fsync .", "fsync a", "unlink .tmp/*"]


async def test_a_reader_syncs_what_it_did_not_write_once(tmp_path: Path, calls: Calls) -> None:
    writer, reader = FolderStore(tmp_path), FolderStore(tmp_path)
    await writer.create("a/1", b"1")
    await writer.create("a/2", b"2")
    calls.take()
    await writer.get("a/1")
    assert calls.take() == []
    await reader.get("a/1")
    assert calls.take() == ["fsync .", "fsync a"]
    await reader.get_range("a/1", 0, 1)
    assert calls.take() == []
    await reader.get("a/2")
    assert calls.take() == ["fsync a"]


async def test_a_listing_syncs_each_folder_once_for_all_in_it(tmp_path: Path, calls: Calls) -> None:
    writer, reader = FolderStore(tmp_path), FolderStore(tmp_path)
    for number in range(5):
        await writer.create(f"a/{number}", b"x")
    calls.take()
    assert len(await reader.list("a/")) == 5
    assert calls.take() == ["fsync .", "fsync a"]
    await reader.list("a/")
    await reader.get("a/3")
    assert calls.take() == []


async def test_a_key_that_was_written_again_is_synced_again(tmp_path: Path, calls: Calls) -> None:
    writer, reader = FolderStore(tmp_path), FolderStore(tmp_path)
    await writer.put("a/k", b"1")
    await reader.get("a/k")
    await writer.put("a/k", b"2")
    calls.take()
    assert await reader.get("a/k") == b"2"
    assert calls.take() == ["fsync a"]


async def test_temporary_files_are_never_listed_and_cannot_be_named(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.put("k", b"x")
    (tmp_path / ".tmp" / "left-by-a-crash").write_bytes(b"half")
    for prefix in ("", ".", ".tmp", ".tmp/"):
        keys = [row.key for row in await store.list(prefix)]
        assert keys == (["k"] if not prefix else [])
    with pytest.raises(InvalidError):
        await store.get(".tmp/left-by-a-crash")


async def test_stale_temporary_files_are_swept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    assert await store.remove_stale_temporary() == 0
    await store.put("k", b"x")
    stale, fresh = tmp_path / ".tmp" / "stale", tmp_path / ".tmp" / "fresh"
    stale.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(stale, (0, 0))
    assert await store.remove_stale_temporary() == 1
    assert sorted(path.name for path in (tmp_path / ".tmp").iterdir()) == ["fresh"]
    assert await store.get("k") == b"x"


async def test_a_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.create("k", b"x")
    await store.put("k", b"y")
    with pytest.raises(ExistsError):
        await store.create("k", b"z")
    assert list((tmp_path / ".tmp").iterdir()) == []


async def test_a_key_below_an_object_and_one_above_are_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.put("a/b", b"x")
    for key in ("a/b/c", "a"):
        with pytest.raises(InvalidError):
            await store.create(key, b"x")
        with pytest.raises(InvalidError):
            await store.put(key, b"x")


async def test_foreign_files_are_no_objects(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.put("a", b"x")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).write_bytes(b"no Unicode")
    os.mkfifo(tmp_path / "pipe")
    assert [row.key for row in await store.list("")] == ["a"]


async def test_what_is_not_a_regular_file_is_neither_read_nor_waited_for(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.put("a", b"x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "below").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
        assert [row.key for row in await store.list("")] == ["a"]
        for key in ("pipe", "itself", "device", "below", "socket"):
            for read in (store.get(key), store.get_range(key, 0, 10)):
                with pytest.raises(NotFoundError):
                    await asyncio.wait_for(read, 5)
        with pytest.raises(StoreFailedError, match="pipe, socket or device"):
            await store.create("pipe", b"x")


async def test_a_folder_among_temporary_files_is_left_alone(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    await store.put("a", b"x")
    (tmp_path / ".tmp" / "folder").mkdir()
    (tmp_path / ".tmp" / "left").write_bytes(b"half")
    assert await store.remove_stale_temporary(age_ms=-10_000) == 1


async def test_a_listing_shows_a_moment_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is always one of them: a listing without any would tell of a moment that never was."""
    store = FolderStore(tmp_path)
    await store.create("checkpoint/1", b"x")
    status = folder._status

    def replaced_meanwhile(path: Path) -> os.stat_result | None:
        if path.name != "3" and path.exists():
            (path.parent / str(int(path.name) + 1)).write_bytes(b"y")
            path.unlink()
        return status(path)

    monkeypatch.setattr(folder, "_status", replaced_meanwhile)
    assert [row.key for row in await store.list("checkpoint/")] == ["checkpoint/3"]


async def test_a_folder_that_never_holds_still_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    await store.create("a/1", b"x")
    monkeypatch.setattr(folder, "_status", lambda _: None)
    with pytest.raises(UnavailableError, match="faster than it can be listed"):
        await store.list("a/")


async def test_a_reader_of_a_folder_that_is_not_there_finds_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "none")
    assert list(await store.list("")) == []
    assert not (tmp_path / "none").exists()


def test_runs_in_simulation(tmp_path: Path) -> None:
    async def scenario() -> bytes:
        store = FolderStore(tmp_path)
        await store.create("k", b"x")
        return bytes(await store.get("k"))

    assert runtime.simulate(scenario(), seed=1) == b"x"


CREATE_MANY = """
import sys
from pathlib import Path
from neve import runtime
from neve.errors import ExistsError
from neve.store.folder import FolderStore

async def main():
    store, me = FolderStore(Path(sys.argv[1])), sys.argv[2]
    sys.stdin.readline()
    for number in range(100):
        try:
            await store.create(f"race/{number:03d}", me.encode())
        except ExistsError:
            continue
        print(number)

print("ready", flush=True)
runtime.run(main())
"""


async def test_of_two_processes_one_wins_each_key(tmp_path: Path) -> None:
    racers = {
        name: subprocess.Popen(
            [sys.executable, "-c", CREATE_MANY, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    }
    for racer in racers.values():
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers.values():
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {name: set(racer.communicate(timeout=60)[0].split()) for name, racer in racers.items()}
    assert all(racer.returncode == 0 for racer in racers.values())
    assert won["one"] & won["two"] == set()
    assert won["one"] | won["two"] == {str(number) for number in range(100)}
    store = FolderStore(tmp_path)
    for name, numbers in won.items():
        for number in numbers:
            assert await store.get(f"race/{int(number):03d}") == name.encode()


async def test_a_folder_that_another_thread_made_meanwhile_was_not_removed(tmp_path: Path) -> None:
    """Two threads may both find it missing; the second must not take the first's for an old one."""
    store = FolderStore(tmp_path / "bucket", fsync=False)
    await store.create("a/1", b"x")
    folder = tmp_path / "bucket" / "a"
    store._make_folder(folder)
    shutil.rmtree(folder)
    with pytest.raises(StoreFailedError, match="was removed"):
        store._make_folder(folder)


@pytest.mark.parametrize("fsync", [True, False])
async def test_folders_are_for_their_user_alone(tmp_path: Path, fsync: bool) -> None:
    root = tmp_path / "above" / "root"
    before = os.umask(0o022)
    try:
        await FolderStore(root, fsync=fsync).put("topics/orders/a", b"1")
    finally:
        os.umask(before)
    made = [root.parent, root, root / "topics", root / "topics" / "orders"]
    assert [each.stat().st_mode & 0o777 for each in made] == [0o700] * len(made)
