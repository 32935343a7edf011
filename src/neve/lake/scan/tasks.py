"""What one Spark task reads: an offset range of one partition, in a bucket that it opens itself.

`StoreRef` and `ScanRange` are pickled from the driver to workers. A task names offsets and not
objects, so it finds them even if segments were merged, tiered or rolled up since planning. The
topic id distinguishes the planned topic from a later one with the same name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neve.bucket.model import TopicReplacedError
from neve.bucket.sync_bucket import Bucket, open_bucket
from neve.cluster.log import NoTopicError
from neve.errors import LostRangeError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ScanRange", "StoreRef", "TopicReplacedError", "bucket_of", "read_range"]


@dataclass(frozen=True)
class StoreRef:
    """What a worker needs to open the bucket; `settings` are names and values, as text."""

    url: str
    layout: str = "neve"
    settings: tuple[tuple[str, str], ...] = ()

    def open(self) -> Bucket:
        """Open the bucket. The caller closes it."""
        layout: Any = self.layout
        return open_bucket(self.url, layout=layout, settings=dict(self.settings))


@dataclass(frozen=True)
class ScanRange:
    """Offsets from `first` to `end` (exclusive) of one partition, filtered by timestamps.

    `bytes` is the planned size. Timestamps are milliseconds, `to_timestamp` is exclusive.
    """

    topic: str
    topic_id: str
    partition: int
    first: int
    end: int
    bytes: int
    from_timestamp: int | None = None
    to_timestamp: int | None = None


_opened: dict[tuple[int, StoreRef], Bucket] = {}


def bucket_of(store: StoreRef) -> Bucket:
    """Return the bucket, opened once per process, so that later tasks find its caches warm."""
    # A fork inherits this table, but not the threads of the open buckets.
    place = (os.getpid(), store)
    if place not in _opened:
        _opened[place] = store.open()
    return _opened[place]


def read_range(
    store: StoreRef, task: ScanRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read a task's records as checked Arrow batches with these columns of `neve.open`."""
    yield from bucket_of(store).arrow(
        task.topic,
        task.partition,
        from_offset=task.first,
        to_offset=task.end,
        from_timestamp=task.from_timestamp,
        to_timestamp=task.to_timestamp,
        columns=columns,
        topic_id=task.topic_id,
    )


def read_what_is_left(
    store: StoreRef, task: ScanRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read a task's records like `read_range`, but skip offsets that were removed meanwhile.

    Raises for damage, and for offsets that are missing although nothing removed them.
    """
    while task.first < task.end:
        try:
            yield from read_range(store, task, columns)
            return
        except (NoTopicError, TopicReplacedError):
            return
        except LostRangeError as error:
            if error.log_start is None:
                raise
            # Above all offsets that were delivered: the log's start passed the reader.
            task = replace(task, first=error.log_start)
