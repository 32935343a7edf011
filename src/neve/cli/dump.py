"""What `neve storage dump` writes: one JSON object a record.

As text, a key or value that is UTF-8 is a JSON string, any other bytes are an object with the one
field `base64`; so a string is always the bytes themselves, whatever they look like. In base64, all
keys and values are base64 strings. Null stays null in both. Keys of headers are text in both, and
an object with `base64` where they are not UTF-8. Headers keep their order and may repeat.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from neve.bucket.model import EARLIEST, Bounds, Record
from neve.bucket.reader import AsyncBucket, LayoutName
from neve.cli import output
from neve.cli.shown import Encoding, record_line
from neve.settings import Settings


@dataclass(frozen=True, kw_only=True)
class DumpSelection:
    """Which records."""

    topic: str | None = None
    partitions: Sequence[int] | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_timestamp: int | None = None
    to_timestamp: int | None = None
    follow: bool = False


async def dump_bucket(
    url: str, layout: LayoutName, settings: Settings, wanted: DumpSelection, *, encoding: Encoding
) -> int:
    """Write all records; what was passed over is told at the end."""
    async with await AsyncBucket.connect(url, layout=layout, settings=settings) as bucket:
        try:
            with output.naming(url):
                await _write_all(await _lists(bucket, wanted), encoding, wanted)
        finally:
            output.flush()
            if bucket.skipped:
                output.complain(
                    f"passed over {bucket.skipped} offsets that were given up for lost or that "
                    "no object holds"
                )
    return 0


async def _lists(bucket: AsyncBucket, wanted: DumpSelection) -> AsyncGenerator[list[Record], None]:
    bounds = Bounds(
        EARLIEST if wanted.from_offset is None else wanted.from_offset,
        wanted.to_offset,
        wanted.from_timestamp,
        wanted.to_timestamp,
    )
    if wanted.follow:
        return await bucket.follow_lists(wanted.topic, wanted.partitions, bounds)
    return bucket.read_lists(wanted.topic, wanted.partitions, bounds)


async def _write_all(
    lists: AsyncGenerator[list[Record], None], encoding: Encoding, wanted: DumpSelection
) -> None:
    written = 0
    # Records on the same terminal are progress enough.
    with output.progress("records", hidden=wanted.follow or output.stdout_is_terminal()) as bar:
        async with contextlib.aclosing(lists):
            async for rows in lists:
                output.write_bytes(b"".join(record_line(row, encoding) for row in rows))
                written += len(rows)
                bar.show(written)
                if wanted.follow:
                    output.flush()
