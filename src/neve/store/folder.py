"""A local folder as a durable bucket.

A create writes a temporary file, syncs it, links it under its key (which fails if the key exists),
and syncs the folder and every new folder above it before it returns. A refused create, a get and a
listing also sync the folder before they report that a key exists, so that no caller acts on a name
that a power failure could undo. A file whose sync fails is discarded and written again: the kernel
may have dropped the unwritten pages. Several processes may share the folder.

Temporary files are in `.tmp` at the top, which no key can reach and no listing shows. The store
never removes folders. If a folder that contained an object is missing, it was removed with all its
objects. Creating it again would hide that, so writes to it fail permanently.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from neve import runtime
from neve.errors import (
    ClosedError,
    ExistsError,
    InvalidError,
    StoreFailedError,
    UnavailableError,
)
from neve.store.durable import Durable, make_private
from neve.store.files import (
    NOT_AN_OBJECT,
    STEP_BYTES,
    disable_read_ahead,
    drop_cached_pages,
    file_in_place_of,
    is_file,
    open_object,
    read_blocks,
    write_blocks,
)
from neve.store.key import checked_key, checked_range, checked_size, is_key
from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo
from neve.store.ranges import get_by_parts

TEMPORARY = ".tmp"
# Attempts to write a file before a failed sync is raised to the caller.
WRITE_ATTEMPTS_MAX = 3
# Writes have their own threads: an acknowledgement must not wait behind reads and deletes, nor
# behind a whole segment. More concurrent writes make a disk slower.
WRITERS_MAX = 4
LARGE_WRITERS_MAX = 2
LARGE_WRITE_BYTES = 8 * 1024 * 1024
# Objects are rarely read soon after they are written: the newest records are in memory. In the page
# cache they would need fresh pages, which cost more than the write, and evict pages that are read.
# Objects of this size bypass the cache or leave it at once; smaller ones are not worth the calls.
UNCACHED_BYTES = 64 * 1024
# Reading this many bytes takes less time than handing the read to a thread.
SMALL_READ_BYTES = 256 * 1024
# A process that writes reads in steps of this size, without the kernel's read-ahead: a disk serves
# requests in order, and a write that a producer waits for must not be behind many MiB of reads.
# Larger reads bypass the page cache: a lagging reader reads them once, and the pages would cost
# more than all other work on the bytes. A process that only reads uses the cache and read-ahead.
READ_STEP_BYTES = STEP_BYTES
# No writer keeps a temporary file this long; older ones were left by a crash.
STALE_MS = 3_600_000
# Most recently written folders, whose removal is detected. Every topic ever created has its own.
FOLDERS_REMEMBERED_MAX = 4_096
# After this many scans during which files vanished, listing a folder raises UnavailableError.
SCANS_MAX = 100
# Transient failures. All others need an operator.
_PASSING = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    | {errno.ESTALE, errno.ETIMEDOUT}
)
# A key that lies below another object, names a folder of objects, or is too long with the root.
_BAD_KEY = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
_REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT), "free some space, or move the folder to a larger disk"
    ),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "allow this process to write there, or use another folder",
    ),
    errno.ENOENT: "cannot create a folder there: use another",
    errno.ENOTDIR: "a file is in place of a folder: move it, or use another folder",
}


class FolderStore:
    """The store port over a folder, which the first write creates."""

    def __init__(self, root: Path, *, fsync: bool = True) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100 (resolve() would follow links)
        self._fsync = fsync
        self._durable = Durable(self.root, self.root / TEMPORARY / "sync-failed")
        self._used: dict[Path, None] = {}  # folders with written objects, the most recent last
        self._lock = threading.Lock()
        self._writers = runtime.ThreadPool(WRITERS_MAX, "folder-write")
        self._large_writers = runtime.ThreadPool(LARGE_WRITERS_MAX, "folder-write-large")
        self._small_reads = runtime.BatchedOffload()
        self._closed = False

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        with self._translated_errors(key):
            return await runtime.offload(self._read, key, 0, None, bytes_max)

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        checked_range(key, start, end)
        if start == end:
            return memoryview(b"")
        with self._translated_errors(key):
            if end - start <= SMALL_READ_BYTES:
                return await self._small_reads.offload(self._read, key, start, end)
            return await runtime.offload(self._read, key, start, end)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return await get_by_parts(self.get_range, key, ranges)

    async def put(self, key: str, data: Buffer) -> None:
        with self._translated_errors(key):
            await self._writers_for(data).offload(self._write, key, data, os.replace)

    async def create(self, key: str, data: Buffer) -> None:
        with self._translated_errors(key):
            await self._writers_for(data).offload(self._write, key, data, os.link)

    async def delete(self, key: str) -> None:
        with self._translated_errors(key):
            await runtime.offload(self._remove, key)

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        with self._translated_errors(prefix):
            return await runtime.offload(self._list, prefix, after)

    async def close(self) -> None:
        self._closed = True
        self._writers.close()
        self._large_writers.close()

    async def stale_temporary(self, age_ms: int = STALE_MS) -> Sequence[ObjectInfo]:
        """List the temporary files that a crash left behind, relative to the root."""
        with self._translated_errors(TEMPORARY):
            return await runtime.offload(self._stale, runtime.now_ms() - age_ms)

    async def remove_stale_temporary(self, age_ms: int = STALE_MS) -> int:
        """Remove temporary files that a crash left behind. Returns their number."""
        with self._translated_errors(TEMPORARY):
            return await runtime.offload(self._sweep, runtime.now_ms() - age_ms)

    def _writers_for(self, data: Buffer) -> runtime.ThreadPool:
        return self._large_writers if len(data) > LARGE_WRITE_BYTES else self._writers

    @property
    def _removed(self) -> str:
        return f"{self.root} or a folder in it was removed while it was in use: restore it"

    @contextlib.contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        """Translate OSErrors of the body into the errors of the store port."""
        if self._closed:
            raise ClosedError(f"the store {self.root} is closed")
        try:
            yield
        except OSError as error:
            reason = f"{self.root}: {error.strerror or error}"
            if error.errno in _PASSING:
                raise UnavailableError(key, reason) from error
            misplaced = error.errno == errno.ENOTDIR and file_in_place_of(self.root)
            if error.errno in _BAD_KEY and not misplaced:
                raise InvalidError(f"{key!r} cannot be a key here: {reason}") from error
            remedy = _REMEDIES.get(error.errno or 0)
            reason = f"{reason}: {remedy}" if remedy else reason
            if error.errno == errno.ENOENT and self._used:  # not for a missing object
                reason = self._removed
            raise StoreFailedError(key, reason) from error

    def _path(self, key: str) -> Path:
        checked_key(key)
        if key.split("/", 1)[0] == TEMPORARY:
            raise InvalidError(f"{key!r} is not a valid key: {TEMPORARY} is for temporary files")
        return self.root / key

    def _can_be_key(self, name: str) -> bool:
        """Return whether a file of this name is an object, not temporary or foreign."""
        return is_key(name) and name.split("/", 1)[0] != TEMPORARY

    # Reading

    def _read(
        self, key: str, start: int, end: int | None, bytes_max: int = OBJECT_BYTES_MAX
    ) -> memoryview:
        path = self._path(key)
        descriptor = open_object(path, key)
        try:
            status = os.fstat(descriptor)
            if end is None:
                checked_size(key, status.st_size, bytes_max)
            last = status.st_size if end is None else min(end, status.st_size)
            data = self._pread(descriptor, start, last)
        finally:
            os.close(descriptor)
        self._believe(path.parent, {key: status})
        return data

    def _pread(self, descriptor: int, start: int, end: int) -> memoryview:
        """Return the bytes from start up to end, or up to the current end of the file."""
        step = whole = max(0, end - start)
        in_steps = bool(self._used) and whole > READ_STEP_BYTES
        if in_steps and self._fsync:  # without fsync, written data is in the page cache
            data, read = read_blocks(descriptor, start, end)
        else:
            data, read = np.empty(whole, np.uint8).data, 0
        if in_steps and read < whole:
            disable_read_ahead(descriptor)
            step = READ_STEP_BYTES
        while read < whole:
            count = os.preadv(descriptor, [data[read : read + step]], start + read)
            if count == 0:
                break
            read += count
        return data[:read].toreadonly()

    def _believe(self, folder: Path, files: dict[str, os.stat_result]) -> None:
        """Sync the folder unless all these files in it are known to be synced."""
        if not self._fsync:
            return
        unknown = {k: status for k, status in files.items() if not self._durable.knows(k, status)}
        if not unknown:
            return
        self._sync(next(iter(unknown)), folder)
        for key, status in unknown.items():
            self._durable.remember(key, status)

    def _sync(self, key: str, folder: Path) -> None:
        """Sync a folder for this key. Raises StoreFailedError forever after a failed sync."""
        if not self._fsync:
            return
        try:
            self._durable.sync(folder)
        except OSError as error:
            raise UnavailableError(
                key, f"cannot open {folder} to sync it: {error.strerror or error}"
            ) from error

    # Writing

    def _write(self, key: str, data: Buffer, place: Callable[[Path, Path], None]) -> None:
        path = self._path(key)
        temporary = self._write_temporary(data)
        try:
            self._place(temporary, path, place)
        except FileExistsError:
            if path.is_dir():
                raise InvalidError(f"{key!r} is a folder of other objects") from None
            if not path.is_file():
                raise StoreFailedError(key, f"{path}: {NOT_AN_OBJECT}: remove it") from None
            self._sync(key, path.parent)
            raise ExistsError(key, "the key exists: read it to find its writer") from None
        finally:
            temporary.unlink(missing_ok=True)
        # After the unlink of the temporary name, which changes it, and before the sync.
        status = _status(path)
        self._sync(key, path.parent)
        self._use(path.parent)
        if status is not None and self._fsync:
            self._durable.remember(key, status)

    def _use(self, folder: Path) -> None:
        with self._lock:
            self._used.pop(folder, None)
            self._used[folder] = None
            if len(self._used) > FOLDERS_REMEMBERED_MAX:
                del self._used[next(iter(self._used))]

    def _write_temporary(self, data: Buffer) -> Path:
        whole = memoryview(data).cast("B")  # so that lengths are in bytes
        for attempt in range(1, WRITE_ATTEMPTS_MAX + 1):
            path = self.root / TEMPORARY / runtime.token(16).hex()
            try:
                descriptor = self._open_temporary(path)
                try:
                    uncached = self._fsync and len(whole) >= UNCACHED_BYTES
                    written = write_blocks(descriptor, whole) if uncached else 0
                    _write_all(descriptor, whole[written:])
                    if self._fsync:
                        os.fsync(descriptor)
                    if uncached:
                        drop_cached_pages(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                path.unlink(missing_ok=True)
                if error.errno != errno.EIO or attempt == WRITE_ATTEMPTS_MAX:
                    raise
            else:
                return path
        raise AssertionError("the last attempt returns or raises")

    def _open_temporary(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            self._make_folder(path.parent)
            return os.open(path, flags, 0o644)

    def _place(self, temporary: Path, path: Path, place: Callable[[Path, Path], None]) -> None:
        try:
            place(temporary, path)
        except FileNotFoundError:
            self._make_folder(path.parent)
            place(temporary, path)

    def _make_folder(self, folder: Path) -> None:
        # If the folder exists now, another thread has just created it: nothing was removed.
        removed = folder in self._used and not folder.exists()
        if removed or (self._used and not self.root.exists()):
            raise StoreFailedError(str(folder.relative_to(self.root)), self._removed)
        if self._fsync:
            self._durable.make_folder(folder)
        else:
            make_private(folder)

    def _remove(self, key: str) -> None:
        path = self._path(key)
        self._durable.forget(key)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return
        self._sync(key, path.parent)

    def _sweep(self, before_ms: int) -> int:
        stale = self._stale(before_ms)
        for row in stale:
            (self.root / row.key).unlink(missing_ok=True)
        return len(stale)

    def _stale(self, before_ms: int) -> Sequence[ObjectInfo]:
        folder = self.root / TEMPORARY
        found: list[ObjectInfo] = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            status = _status(path)  # None if its writer has finished
            if status is not None and is_file(status) and path != self._durable.mark:
                key, at_ms = f"{TEMPORARY}/{path.name}", status.st_mtime_ns // 1_000_000
                found.append(ObjectInfo(key, status.st_size, at_ms))
        return [row for row in found if row.modified_ms <= before_ms]

    # Listing

    def _list(self, prefix: str, after: str) -> Sequence[ObjectInfo]:
        found: list[ObjectInfo] = []
        top = prefix.rpartition("/")[0]
        if top:
            checked_key(top)
        if top.split("/", 1)[0] == TEMPORARY:
            return found
        for folder, files in self._walk(top, prefix, after):
            self._believe(folder, files)
            found += [
                ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)
                for key, status in files.items()
            ]
        return sorted(found)

    def _walk(
        self, top: str, prefix: str, after: str
    ) -> Iterator[tuple[Path, dict[str, os.stat_result]]]:
        """Yield each folder that can contain matching keys, with the matching files in it."""
        pending = [top]
        while pending:
            name = pending.pop()
            folder = self.root / name if name else self.root
            for _ in range(SCANS_MAX):
                found = self._scan(folder, name, prefix, after)
                if found is not None:
                    break
            else:
                raise UnavailableError(name, f"{folder} changes faster than it can be listed")
            below, files = found
            pending += below
            yield folder, files

    def _scan(
        self, folder: Path, name: str, prefix: str, after: str
    ) -> tuple[Sequence[str], dict[str, os.stat_result]] | None:
        """Return the matching folders and files in one folder; None if a file vanished meanwhile.

        Another file may have been created before it vanished, which this scan does not show. A
        listing without both would show a state that never existed.
        """
        below: list[str] = []
        files: dict[str, os.stat_result] = {}
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return below, files
        for entry in entries:
            key = f"{name}/{entry.name}" if name else entry.name
            if entry.is_dir(follow_symlinks=False):
                if _may_hold(key + "/", prefix, after) and self._can_be_key(key):
                    below.append(key)
            elif key > after and key.startswith(prefix) and self._can_be_key(key):
                status = _status(folder / entry.name)
                if status is None:
                    if not entry.is_symlink():
                        return None
                elif is_file(status):
                    files[key] = status
        return below, files


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Return whether a key below `folder` (which ends in a slash) can match."""
    right_prefix = folder.startswith(prefix) or prefix.startswith(folder)
    return right_prefix and (folder > after or after.startswith(folder))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None  # deleted since it was listed
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return None
        raise


def _write_all(descriptor: int, rest: memoryview) -> None:
    while rest:
        rest = rest[os.write(descriptor, rest) :]
