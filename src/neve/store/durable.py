"""Durability of names in a local folder: which files survive a power failure.

A new name in a folder is durable only after an fsync of the folder and of every new folder above
it. A writer syncs the names that it creates. A reader cannot know whether the writer did so before
it crashed, and therefore syncs too before it trusts a name. To keep that cheap, this class
remembers which files (by key, inode and change time) and folders were synced.

The folders above the root are synced once as well: a process that crashed while it created them may
have left any of them without a durable name.

A failed fsync of a folder is final. The kernel reports a lost write once and may then treat the
lost names as clean: a second fsync succeeds although they are only in the cache, where every
process still sees them. The store therefore fails permanently, in this process and, through a mark
file in the same cache, in every other process on this folder. Only a remount shows what is on disk.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from neve.errors import StoreFailedError

# Enough for every object of a busy tail. An entry takes about 200 bytes; a forgotten one, a sync.
FILES_REMEMBERED_MAX = 65_536
# Folders whose syncs may be shared; those that were synced longest ago are forgotten.
FOLDERS_REMEMBERED_MAX = 1_024
PRIVATE = 0o700
"""Data folders are accessible only to the user that runs Neve, unless changed manually."""


def make_private(folder: Path) -> None:
    """Create the folder and its missing parents, accessible only to this user."""
    for new in _missing(folder):
        new.mkdir(mode=PRIVATE, exist_ok=True)


def _missing(folder: Path) -> list[Path]:
    """Return the folder and its missing parents, topmost first."""
    found = [folder]
    while not found[-1].parent.exists():
        found.append(found[-1].parent)
    return found[::-1]


class _Folder:
    """One folder's syncs. Callers that arrive during a sync share the next one."""

    def __init__(self, path: Path, fsync: Callable[[Path], None]) -> None:
        self._path = path
        self._fsync = fsync
        self._turn = threading.Condition()
        self._begun = 0
        self._done = 0  # the last successful sync
        self._running = False

    def sync(self) -> None:
        """Wait for a successful sync that started after this call."""
        with self._turn:
            needed = self._begun + 1
            while self._running and self._done < needed:
                self._turn.wait()
            if self._done >= needed:
                return
            self._running = True
            self._begun += 1
            mine = self._begun
        succeeded = False
        try:
            self._fsync(self._path)
            succeeded = True
        finally:
            with self._turn:
                self._running = False
                if succeeded:
                    self._done = mine
                self._turn.notify_all()


class Durable:
    """Syncs folders below `root` and remembers which are synced. Thread-safe.

    `mark` is the file that disables the store for every process after a failed sync of a folder.
    """

    def __init__(self, root: Path, mark: Path) -> None:
        self._root = root
        self.mark = mark
        self._failed = False
        self._folders: set[Path] = set()
        self._files: dict[str, tuple[int, int, int]] = {}
        self._lock = threading.Lock()
        self._syncs: dict[Path, _Folder] = {}

    def knows(self, key: str, status: os.stat_result) -> bool:
        """Return whether this very file is known to be synced under this key."""
        return self._files.get(key) == _identity(status)

    def remember(self, key: str, status: os.stat_result) -> None:
        """Remember a file as synced. The status must be from before the sync of the folder."""
        with self._lock:
            self._files.pop(key, None)
            self._files[key] = _identity(status)
            if len(self._files) > FILES_REMEMBERED_MAX:
                del self._files[next(iter(self._files))]

    def forget(self, key: str) -> None:
        with self._lock:
            self._files.pop(key, None)

    def make_folder(self, folder: Path) -> None:
        """Create the folder and its missing parents, and sync each into its parent."""
        for new in _missing(folder):
            new.mkdir(mode=PRIVATE, exist_ok=True)
            self._fsync(new.parent)

    def sync(self, folder: Path) -> None:
        """Make all names in `folder`, and the folder's own name, durable."""
        self._sync_names(folder)
        with self._lock:
            syncs = self._syncs.pop(folder, None) or _Folder(folder, self._fsync)
            self._syncs[folder] = syncs
            if len(self._syncs) > FOLDERS_REMEMBERED_MAX:
                del self._syncs[next(iter(self._syncs))]
        syncs.sync()

    def _sync_names(self, folder: Path) -> None:
        """Sync the names of the folder and of its parents, topmost first, once each."""
        unknown: list[Path] = []
        while folder != self._root and folder not in self._folders:
            unknown.append(folder)
            folder = folder.parent
        if self._root not in self._folders:
            for above in reversed(_same_device_above(self._root)):
                with contextlib.suppress(
                    PermissionError
                ):  # then Neve cannot have created a name in it
                    self._fsync(above)
            self._folders.add(self._root)
        for below in reversed(unknown):
            self._fsync(below.parent)
            self._folders.add(below)

    def _fsync(self, folder: Path) -> None:
        """Sync one folder, unless a sync has failed before, here or in another process.

        Raises OSError if the folder cannot be opened, and StoreFailedError from the first failed
        sync on.
        """
        if self._failed or self.mark.exists():
            raise self._sync_failed("an earlier sync of a folder failed")
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._failed = True
            reason = f"cannot sync {folder}: {error.strerror or error}"
            with contextlib.suppress(OSError):  # then later syncs fail as well
                self.mark.write_text(reason + "\n")
            raise self._sync_failed(reason) from error
        finally:
            os.close(descriptor)

    def _sync_failed(self, reason: str) -> StoreFailedError:
        return StoreFailedError(
            str(self._root),
            f"{reason}. The last writes may be in the page cache and not on disk: stop every"
            " process that uses this folder, check the disk, remount its file system (or restart"
            f" the machine), remove {self.mark} if it still exists, and start again",
        )


def _same_device_above(folder: Path) -> list[Path]:
    """Return the parents of this folder on the same file system, the nearest first."""
    found: list[Path] = []
    device = folder.stat().st_dev
    for above in folder.parents:
        if above.stat().st_dev != device:
            break
        found.append(above)
    return found


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    # An inode number may be reused after a delete, but with a later change time.
    return (status.st_ino, status.st_ctime_ns, status.st_size)
