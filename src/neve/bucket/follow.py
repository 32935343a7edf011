"""Following partitions: what is there, and then what is committed, as it is committed.

A round looks at the tails once and reads what is new of each partition in turn. A partition that
fails is set aside; the others go on until they have nothing new, and then the failure is raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from neve import runtime
from neve.bucket.chunks import Chunk
from neve.bucket.layout import News, Watcher
from neve.bucket.model import PARTITION_ERRORS, PartitionName, Selection, raise_failures
from neve.bucket.partition import PartitionReader
from neve.errors import DamagedError, NeveError

T = TypeVar("T")
Decoding: TypeAlias = Callable[[PartitionName, Sequence[Chunk], Selection], Iterator[T]]

FIRST_GROUP_BYTES = 2 * 1024 * 1024
"""Chunks that are decoded together, at first: whoever wants few records does not wait for many."""
GROUP_BYTES = 8 * 1024 * 1024
"""The same, in the end: large beside what a call costs, small beside a reader."""


async def decoded(
    reader: PartitionReader, chunks: AsyncGenerator[Chunk, None], decode: Decoding[T]
) -> AsyncGenerator[T, None]:
    """Chunks as what a caller gets, made beside the loop so that downloads go on meanwhile."""
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


async def _grouped(chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[list[Chunk], None]:
    """Chunks put together: the end of a log lies in objects of a few hundred records.

    Each group is twice as large as the one before, up to GROUP_BYTES. Where reading fails, what was
    read before is given first.
    """
    group: list[Chunk] = []
    size, enough = 0, min(FIRST_GROUP_BYTES, GROUP_BYTES)
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                group.append(chunk)
                size += len(chunk.data)
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
    """What `decode` makes of opened readers' chunks.

    It ends when every selection is at its end, or with a failure.
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


def _chunks(reader: PartitionReader, news: News) -> AsyncGenerator[Chunk, None]:
    return reader.again() if news.stale else reader.newer(news.slices)
