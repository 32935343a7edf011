"""What of a local folder is known to survive a power cut.

A new name in a folder counts only once the folder itself has been synced, and so has every folder
above it that is new. Whoever writes a name syncs it; whoever reads one cannot tell whether its
writer has come that far, or died, and so syncs too before it believes the name. To keep that
cheap this class remembers which files (by key, inode and change time) and which folders it has
seen synced.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

# Enough for every object of a busy tail. An entry is some 200 bytes; one forgotten costs a sync.
FILES_REMEMBERED_MAX = 65_536
# Folders whose syncs may be shared; those that were synced longest ago are forgotten.
FOLDERS_REMEMBERED_MAX = 1_024


class _Folder:
    """One folder's syncs. Whoever comes while one runs shares the next one with all who wait."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
            sync_folder(self._path)
            succeeded = True
        finally:
            with self._turn:
                self._running = False
                if succeeded:
                    self._done = mine
                self._turn.notify_all()


class Durable:
    """Syncs folders below `root`, and remembers. Used by several threads at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
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
        missing = [folder]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for new in reversed(missing):
            new.mkdir(exist_ok=True)
            sync_folder(new.parent)

    def sync(self, folder: Path) -> None:
        """Make every name that is now in `folder`, and the folder's own, survive a power cut."""
        self._sync_names(folder)
        with self._lock:
            syncs = self._syncs.pop(folder, None) or _Folder(folder)
            self._syncs[folder] = syncs
            if len(self._syncs) > FOLDERS_REMEMBERED_MAX:
                del self._syncs[next(iter(self._syncs))]
        syncs.sync()

    def _sync_names(self, folder: Path) -> None:
        """Sync the names of the folder and of those above it, from the root down, once each."""
        unknown: list[Path] = []
        while folder != self._root and folder not in self._folders:
            unknown.append(folder)
            folder = folder.parent
        for below in reversed(unknown):
            sync_folder(below.parent)
            self._folders.add(below)


def sync_folder(folder: Path) -> None:
    """fsync one folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    # An inode number is used again after a delete; its change time is then a later one.
    return (status.st_ino, status.st_ctime_ns, status.st_size)
