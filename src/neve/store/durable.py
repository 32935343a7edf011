"""What of a local folder is known to survive a power cut.

A new name in a folder counts only once the folder itself has been synced, and so has every folder
above it that is new. Whoever writes a name syncs it; whoever reads one cannot tell whether its
writer has come that far, or died, and so syncs too before it believes the name. To keep that
cheap this class remembers which files (by key, inode and change time) and which folders it has
seen synced.

The folders above the root are synced as well, once: a process that crashed while it made them may
have left any of them without a durable name.

A failed fsync of a folder is final. The kernel reports a lost write once and may then treat the
lost names as clean: a second fsync succeeds although they are only in the cache, where every
process still sees them. So the store ends, in this process and, by a mark that lies in the same
cache, in every other one on this folder. Only a remount shows again what the disk holds.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from neve.errors import StoreFailedError

# Enough for every object of a busy tail. An entry is some 200 bytes; one forgotten costs a sync.
FILES_REMEMBERED_MAX = 65_536
# Folders whose syncs may be shared; those that were synced longest ago are forgotten.
FOLDERS_REMEMBERED_MAX = 1_024
PRIVATE = 0o700
"""Folders that hold data are for the user alone who runs Neve; wider rights are given by hand."""


def make_private(folder: Path) -> None:
    """Make the folder and all missing ones above it, for this user alone."""
    for new in _missing(folder):
        new.mkdir(mode=PRIVATE, exist_ok=True)


def _missing(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, from the top."""
    found = [folder]
    while not found[-1].parent.exists():
        found.append(found[-1].parent)
    return found[::-1]


class _Folder:
    """One folder's syncs. Whoever comes while one runs shares the next one with all who wait."""

    def __init__(self, path: Path, fsync: Callable[[Path], None]) -> None:
        self._path = path
        self._fsync = fsync
        self._turn = threading.Condition()
        self._begun = 0
        self._done = 0  # the last one that succeeded
        self._running = False

    def sync(self) -> None:
        """Return when a sync has succeeded that began after this was called."""
        with self._turn:
            wanted = self._begun + 1
            while self._running and self._done < wanted:
                self._turn.wait()
            if self._done >= wanted:
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
    """Syncs folders below `root`, and remembers. Used by several threads at once.

    `mark` is the file that ends the store for every process once a sync of a folder has failed.
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
        """Whether this very file was seen synced under this key."""
        return self._files.get(key) == _identity(status)

    def remember(self, key: str, status: os.stat_result) -> None:
        """To be called with a status taken before the folder was synced."""
        with self._lock:
            self._files.pop(key, None)
            self._files[key] = _identity(status)
            if len(self._files) > FILES_REMEMBERED_MAX:
                del self._files[next(iter(self._files))]

    def forget(self, key: str) -> None:
        with self._lock:
            self._files.pop(key, None)

    def make_folder(self, folder: Path) -> None:
        """Make the folder and all missing ones above it, each synced into the one above."""
        for new in _missing(folder):
            new.mkdir(mode=PRIVATE, exist_ok=True)
            self._fsync(new.parent)

    def sync(self, folder: Path) -> None:
        """Make every name that is now in `folder`, and the folder's own, survive a power cut."""
        self._sync_names(folder)
        with self._lock:
            syncs = self._syncs.pop(folder, None) or _Folder(folder, self._fsync)
            self._syncs[folder] = syncs
            if len(self._syncs) > FOLDERS_REMEMBERED_MAX:
                del self._syncs[next(iter(self._syncs))]
        syncs.sync()

    def _sync_names(self, folder: Path) -> None:
        """Sync the names of the folder and of those above it, from the top down, once each."""
        unknown: list[Path] = []
        while folder != self._root and folder not in self._folders:
            unknown.append(folder)
            folder = folder.parent
        if self._root not in self._folders:
            for above in reversed(_same_device_above(self._root)):
                with contextlib.suppress(PermissionError):  # nor could we have made a name in it
                    self._fsync(above)
            self._folders.add(self._root)
        for below in reversed(unknown):
            self._fsync(below.parent)
            self._folders.add(below)

    def _fsync(self, folder: Path) -> None:
        """Sync one folder, unless a sync has failed before, here or in another process.

        Raises OSError where the folder cannot be opened, and StoreFailedError from the first sync
        that failed on.
        """
        if self._failed or self.mark.exists():
            raise self._ended("a folder could not be synced earlier")
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._failed = True
            reason = f"{folder} could not be synced: {error.strerror or error}"
            with contextlib.suppress(OSError):  # a disk that takes no file syncs no folder either
                self.mark.write_text(reason + "\n")
            raise self._ended(reason) from error
        finally:
            os.close(descriptor)

    def _ended(self, reason: str) -> StoreFailedError:
        return StoreFailedError(
            str(self._root),
            f"{reason}. What was written last may be in the system's cache and not on the disk:"
            " stop every process that uses this folder, check the disk, unmount and mount its"
            f" file system again (or restart the machine), remove {self.mark} if it is still"
            " there, and start again",
        )


def _same_device_above(folder: Path) -> list[Path]:
    """The folders above this one on its file system, the nearest first."""
    found: list[Path] = []
    device = folder.stat().st_dev
    for above in folder.parents:
        if above.stat().st_dev != device:
            break
        found.append(above)
    return found


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    # An inode number is used again after a delete; its change time is then a later one.
    return (status.st_ino, status.st_ctime_ns, status.st_size)
