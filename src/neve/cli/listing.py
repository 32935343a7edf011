"""Output of `neve storage ls`: tables, or JSON."""

from __future__ import annotations

from typing import Any

from neve.bucket.async_bucket import AsyncBucket, LayoutName
from neve.bucket.info import BucketInfo
from neve.bucket.layout import PartitionInfo
from neve.cli import output
from neve.settings import Settings


async def list_bucket(url: str, layout: LayoutName, settings: Settings, *, as_json: bool) -> int:
    """Print an overview of a bucket. Returns the exit code: 1 if parts could not be read."""
    async with await AsyncBucket.connect(url, layout=layout, settings=settings) as bucket:
        with output.naming(url), output.progress("partitions") as bar:
            info = await bucket.describe(bar.show)
    if as_json:
        output.write_json({"url": url, "layout": layout, **as_document(info)})
    else:
        print_info(url, info)
    for error in info.errors:
        output.complain(error)
    return 1 if info.errors else 0


def as_document(info: BucketInfo) -> dict[str, Any]:
    """Return everything as a JSON document."""
    return {
        "cluster_id": info.cluster_id,
        "topics": [
            {
                "name": topic.name,
                "id": topic.id,
                "partitions": [row._asdict() for row in topic.partitions],
            }
            for topic in info.topics
        ],
        "streams": [stream._asdict() for stream in info.streams],
        "errors": info.errors,
    }


def print_info(url: str, info: BucketInfo) -> None:
    """Print the document as tables."""
    print(f"{url}: cluster {info.cluster_id}" if info.cluster_id else url)
    print()
    titles = ("topic", "partition", "start", "end", "segments", "bytes", "tail", "streams")
    output.print_table(
        (*titles, "skipped"),
        [
            (
                topic.name,
                row.partition,
                row.start,
                row.end,
                row.segments,
                output.human_bytes(row.segment_bytes),
                output.human_bytes(row.tail_bytes),
                ",".join(map(str, row.streams)) or "-",
                _skipped(row),
            )
            for topic in info.topics
            for row in topic.partitions
        ],
    )
    if not info.streams:
        return
    print()
    output.print_table(
        ("stream", "node", "checkpoint", "next", "objects", "state"),
        [
            (
                stream.incarnation,
                stream.node,
                stream.checkpoint,
                stream.position,
                stream.objects,
                "unreadable" if stream.error else "sealed" if stream.sealed else "open",
            )
            for stream in info.streams
        ],
    )


def _skipped(row: PartitionInfo) -> str:
    """Return how many offsets were given up, and over which the log leaps."""
    leapt = [
        f"from {first} on, end not known; the log continues at {end}"
        for first, end in row.open_losses
    ]
    return "; ".join([str(row.skipped), *leapt])
