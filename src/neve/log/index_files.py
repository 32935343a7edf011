"""The files of the index cache: one per bundle, limited in total bytes, checked when read.

An entry is a header (magic, version, lengths), the bundle's key, the bundle, and a CRC-32C of all
of it. Its file name is a hash of the key, because keys may be too long for file names. The format
is private to this machine: a bundle whose entry has another version is fetched again.

Only `EntryFolder` writes to the folder. It counts every byte there, including files that are being
written or removed, and makes room before it writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import struct
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from neve import runtime
from neve.errors import InvalidError
from neve.records.crc import crc32c
from neve.store.durable import make_private

MAGIC = b"NVIC"
VERSION = 1
ENTRY_SUFFIX = ".entry"
TEMPORARY_SUFFIX = ".temporary"

_HEADER = struct.Struct(">4sHHI")
_TRAILER = struct.Struct(">I")


@dataclass
class FileCounters:
    """Counters of damaged and evicted entries, and of failed file operations."""

    damaged: int = 0
    evicted: int = 0
    failures: int = 0


def encode_entry(key: str, data: bytes) -> bytes:
    name = key.encode()
    body = _HEADER.pack(MAGIC, VERSION, len(name), len(data)) + name + data
    return body + _TRAILER.pack(crc32c(body))


def decode_entry(key: str, entry: bytes) -> memoryview | None:
    """Return the bundle in an entry; None if it is damaged, or of another key or version."""
    name = key.encode()
    start = _HEADER.size + len(name)
    length = len(entry) - start - _TRAILER.size
    if length < 0 or entry[:start] != _HEADER.pack(MAGIC, VERSION, len(name), length) + name:
        return None
    view = memoryview(entry)
    if _TRAILER.unpack_from(view, start + length)[0] != crc32c(view[: start + length]):
        return None
    return view[start : start + length]


class EntryFolder:
    """The entries of one folder, the least recently used first."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.counters = FileCounters()
        self.bytes = 0
        self._folder = folder
        self._bytes_max = bytes_max
        self._entries: OrderedDict[str, int] = OrderedDict()
        self._entries_bytes = 0
        # Files of removed entries that still exist, and the task that deletes them.
        self._leaving: dict[str, int] = {}
        self._remover: asyncio.Task[None] | None = None
        # One write at a time, so that another write cannot take the room that one has made.
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, folder: Path, bytes_max: int) -> EntryFolder:
        """Open a folder with the entries in it.

        Removes temporary files of a crash, and the oldest entries above `bytes_max`. Raises
        InvalidError if the folder cannot be used.
        """
        opened = cls(folder, bytes_max)
        try:
            found = await runtime.offload(_prepare, folder)
        except OSError as error:
            raise InvalidError(
                f"index.cache.folder: {folder} cannot be used: {error.strerror}"
            ) from error
        for name, size in found:
            opened.bytes += size
            opened._add(name, size)
        opened._evict_down_to(bytes_max)
        await opened.settle()
        return opened

    def touch(self, key: str) -> None:
        """Mark an entry as the most recently used."""
        name = _name(key)
        if name in self._entries:
            self._entries.move_to_end(name)

    async def read(self, key: str) -> memoryview | None:
        """Return the bundle, or None if it must be fetched. A bad entry is removed."""
        name = _name(key)
        if name not in self._entries:
            return None
        try:
            entry = await runtime.offload(_read, self._folder / name)
        except OSError:
            self.counters.failures += 1
            self.discard(key)
            return None
        data = decode_entry(key, entry)
        if data is None:
            self.counters.damaged += 1
            self.discard(key)
            return None
        self.touch(key)
        return data

    async def write(self, key: str, data: bytes) -> None:
        """Write a bundle, if it fits. Disk errors are counted, not raised."""
        name, entry = _name(key), encode_entry(key, data)
        if len(entry) > self._bytes_max:
            return
        async with self._writing:
            if name in self._entries or not await self._make_room(name, len(entry)):
                return
            self.bytes += len(entry)
            try:
                await runtime.offload(_write, self._folder / name, entry)
            except OSError:
                self.counters.failures += 1
                self.bytes -= len(entry)
            else:
                self._add(name, len(entry))

    def discard(self, key: str) -> None:
        """Remove an entry now and its file in the background."""
        self._remove(_name(key))

    async def settle(self) -> None:
        """Wait for the files that are being removed."""
        while self._remover is not None and not self._remover.done():
            await asyncio.wait([self._remover])

    async def _make_room(self, name: str, size: int) -> bool:
        """Evict entries to make room, and return whether `size` bytes can be written now."""
        self._evict_down_to(self._bytes_max - size)
        # A pending removal of a file with this name would remove the new file.
        if name in self._leaving or self.bytes + size > self._bytes_max:
            await self.settle()
        return self.bytes + size <= self._bytes_max

    def _evict_down_to(self, bytes_max: int) -> None:
        while self._entries_bytes > bytes_max:
            self.counters.evicted += 1
            self._remove(next(iter(self._entries)))

    def _add(self, name: str, size: int) -> None:
        self._entries[name] = size
        self._entries_bytes += size

    def _remove(self, name: str) -> None:
        size = self._entries.pop(name, None)
        if size is None:
            return
        self._entries_bytes -= size
        self._leaving[name] = size
        if self._remover is None or self._remover.done():
            self._remover = runtime.spawn(self._remove_leaving(), name="index removal")

    async def _remove_leaving(self) -> None:
        while self._leaving:
            names = list(self._leaving)
            gone = await runtime.offload(_unlink_all, self._folder, names)
            for name in names:
                size = self._leaving.pop(name)
                if name in gone:
                    self.bytes -= size
                else:
                    self.counters.failures += 1  # the file still exists, so its bytes still count


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40] + ENTRY_SUFFIX


def _prepare(folder: Path) -> list[tuple[str, int]]:
    """Create the folder and remove half-written files.

    Returns the name and size of each entry, the least recently used first.
    """
    make_private(folder)
    found: list[tuple[int, str, int]] = []
    for path in folder.iterdir():
        if path.name.endswith(TEMPORARY_SUFFIX):
            path.unlink(missing_ok=True)
        elif path.name.endswith(ENTRY_SUFFIX):
            status = path.stat()
            found.append((status.st_mtime_ns, path.name, status.st_size))
    return [(name, size) for _, name, size in sorted(found)]


def _unlink_all(folder: Path, names: list[str]) -> set[str]:
    """Remove files, and return the names of those that no longer exist."""
    gone: set[str] = set()
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
            gone.add(name)
    return gone


def _read(path: Path) -> bytes:
    entry = path.read_bytes()
    # The modification time keeps the order of use across restarts.
    with contextlib.suppress(OSError):
        os.utime(path)
    return entry


def _write(path: Path, entry: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{runtime.token(8).hex()}{TEMPORARY_SUFFIX}")
    try:
        temporary.write_bytes(entry)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
