"""Follows partitions: yields the existing records, then new ones as they are committed.

A round polls the tails once and reads the new records of each partition in turn. If a partition
fails, the others continue until they have nothing new; then the failure is raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from neve import runtime
from neve.bucket.layout import News, Watcher
from neve.bucket.model import PARTITION_ERRORS, PartitionName, Selection, raise_failures
from neve.bucket.partition import PartitionReader
from neve.errors import DamagedError, NeveError
from neve.log.reading.record_chunk import RecordChunk

T = TypeVar("T")
Decoding: TypeAlias = Callable[[PartitionName, Sequence[RecordChunk], Selection], Iterator[T]]

FIRST_GROUP_BYTES = 2 * 1024 * 1024
"""Size of the first group of chunks that are decoded together: small, for a quick first record."""
GROUP_BYTES = 8 * 1024 * 1024
"""Limit for later groups: makes the cost per call negligible, and takes little memory."""


async def decoded(
    reader: PartitionReader, chunks: AsyncGenerator[RecordChunk, None], decode: Decoding[T]
) -> AsyncGenerator[T, None]:
    """Yield what `decode` makes of chunks. It runs in a thread, so that downloads continue."""
    async with contextlib.aclosing(_grouped(chunks)) as groups:
        async for group in groups:
            parts = decode(reader.name, group, reader.selection)
            while (part := await _next(reader, parts)) is not None:
                yield part


async def _next(reader: PartitionReader, parts: Iterator[T]) -> T | None:
    try:
        return await runtime.offload(next, parts, None)
    except DamagedError as error:
        raise reader.undecodable(error) from error


async def _grouped(
    chunks: AsyncGenerator[RecordChunk, None],
) -> AsyncGenerator[list[RecordChunk], None]:
    """Yield groups of chunks, because a log's tail is in small objects of a few hundred records.

    Each group is twice as large as the one before, up to GROUP_BYTES. If reading fails, the chunks
    before the failure are yielded first.
    """
    group: list[RecordChunk] = []
    size, enough = 0, min(FIRST_GROUP_BYTES, GROUP_BYTES)
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                group.append(chunk)
                size += chunk.size
                if size >= enough:
                    yield group
                    group, size, enough = [], 0, min(2 * enough, GROUP_BYTES)
        except PARTITION_ERRORS:
            if group:
                yield group
            raise
        if group:
            yield group


async def follow(
    readers: Sequence[PartitionReader],
    failures: dict[PartitionName, NeveError],
    watcher: Watcher,
    poll_seconds: float,
    decode: Decoding[T],
) -> AsyncGenerator[T, None]:
    """Yield what `decode` makes of the chunks of opened readers.

    Ends when every selection is at its end. Raises the failures of partitions.
    """
    live = list(readers)
    while live := [reader for reader in live if _goes_on(reader, failures)]:
        delivered = False
        news = await watcher.poll()
        for reader in live:
            if reader.name not in news:
                continue
            try:
                chunks = _chunks(reader, news[reader.name])
                async with contextlib.aclosing(decoded(reader, chunks, decode)) as parts:
                    async for part in parts:
                        delivered = True
                        yield part
            except PARTITION_ERRORS as error:
                failures[reader.name] = error
        if not delivered:
            raise_failures(failures)
            await runtime.sleep(poll_seconds)
    raise_failures(failures)


def _goes_on(reader: PartitionReader, failures: dict[PartitionName, NeveError]) -> bool:
    return not reader.finished and reader.name not in failures


def _chunks(reader: PartitionReader, news: News) -> AsyncGenerator[RecordChunk, None]:
    return reader.again() if news.stale else reader.newer(news.slices)
