"""Output of `neve storage dump`: one JSON object per record.

As text, a key or value that is valid UTF-8 is a JSON string; other bytes are an object with the
single field `base64`. A string is thus always the bytes themselves. In base64, all keys and values
are base64 strings. Null stays null in both. Header keys are text in both, or an object with
`base64` if they are not UTF-8. Headers keep their order and may repeat.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from neve.bucket.async_bucket import AsyncBucket, LayoutName
from neve.bucket.model import EARLIEST, Bounds, Record
from neve.cli import output
from neve.cli.record_json import Encoding, record_line
from neve.settings import Settings


@dataclass(frozen=True, kw_only=True)
class DumpSelection:
    """The records to write."""

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
    """Write all records. Prints the number of skipped offsets at the end."""
    async with await AsyncBucket.connect(url, layout=layout, settings=settings) as bucket:
        try:
            with output.naming(url):
                await _write_all(await _lists(bucket, wanted), encoding, wanted)
        finally:
            output.flush()
            if bucket.skipped:
                output.complain(
                    f"skipped {bucket.skipped} offsets that are missing or were given up with "
                    "`neve storage skip`"
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
    # Records printed on the same terminal show the progress.
    with output.progress("records", hidden=wanted.follow or output.stdout_is_terminal()) as bar:
        async with contextlib.aclosing(lists):
            async for rows in lists:
                output.write_bytes(b"".join(record_line(row, encoding) for row in rows))
                written += len(rows)
                bar.show(written)
                if wanted.follow:
                    output.flush()
