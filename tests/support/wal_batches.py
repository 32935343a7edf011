"""Batches for a WAL stream, whose bytes identify them."""

from __future__ import annotations

from neve import runtime
from neve.errors import FencedError, NeveError
from neve.log.wal.object import SliceMeta
from neve.log.wal.reader import StreamTail, WalReader
from neve.log.wal.writer import Commit, WalWriter
from neve.settings import WalSettings

TOPIC = bytes(range(16))
SMALL = WalSettings(object_bytes=4096, buffer_bytes=64 * 1024, inflight_max=4)


def topic(number: int) -> bytes:
    return number.to_bytes(16, "big")


def batch(offset: int, size: int = 100, text: str = "") -> bytes:
    return f"{text}{offset},".encode().ljust(size, b".")


def meta(offset: int, *, partition: int = 0, topic_id: bytes = TOPIC, epoch: int = 0) -> SliceMeta:
    return SliceMeta(topic_id, partition, epoch, offset, offset, offset)


def append(
    writer: WalWriter, offset: int, *, size: int = 100, partition: int = 0, epoch: int = 0
) -> Commit:
    return writer.append(meta(offset, partition=partition, epoch=epoch), batch(offset, size))


def offsets(tail: StreamTail, partition: int = 0, topic_id: bytes = TOPIC) -> list[int]:
    """Return every offset of a partition that a tail holds, in its order."""
    return [
        offset
        for _, entry in tail.of(topic_id, partition)
        for offset in range(entry.base_offset, entry.last_offset + 1)
    ]


async def texts(
    reader: WalReader, tail: StreamTail, partition: int = 0, topic_id: bytes = TOPIC
) -> list[int]:
    """Return the same from the bytes themselves, through checked reads."""
    found: list[int] = []
    for item, entry in tail.of(topic_id, partition):
        data = bytes(await reader.slice_data(item, entry))
        found += [int(word.strip(b".")) for word in data.split(b",")[:-1]]
    return found


class Told:
    """What an appender was told about each offset."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.refused: dict[int, NeveError] = {}

    async def watch(self, offset: int, commit: Commit) -> None:
        try:
            await commit.wait()
        except NeveError as error:
            self.refused[offset] = error
        else:
            self.committed.append(offset)

    @property
    def fenced(self) -> list[int]:
        return sorted(
            offset for offset, error in self.refused.items() if isinstance(error, FencedError)
        )


async def append_until_ended(
    writer: WalWriter, told: Told, watchers: runtime.Tasks, *, count: int, pause_seconds: float
) -> None:
    """One producer that goes on until its stream ends."""
    for offset in range(count):
        try:
            await writer.room()
            commit = append(writer, offset)
        except NeveError:
            return
        watchers.start(told.watch(offset, commit))
        await runtime.sleep(pause_seconds * runtime.chance().random())
