"""What one Spark task reads: a range of one partition's offsets, in a bucket that it opens itself.

Both descriptions travel from the driver to workers by pickling. A task names offsets and not
objects, so whatever was merged, tiered or rolled up in between, it finds them; a topic that was
deleted and made again it does not mistake for the one it was planned for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neve.bucket.facade import Bucket, open_bucket
from neve.bucket.model import TopicReplacedError
from neve.cluster.log import NoTopicError
from neve.errors import LostRangeError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OffsetRange", "StoreRef", "TopicReplacedError", "bucket_of", "read_range"]


@dataclass(frozen=True)
class StoreRef:
    """A bucket as a worker needs to know it; `settings` are names and values, as text."""

    url: str
    layout: str = "neve"
    settings: tuple[tuple[str, str], ...] = ()

    def open(self) -> Bucket:
        """The bucket, for the caller to close."""
        layout: Any = self.layout
        return open_bucket(self.url, layout=layout, settings=dict(self.settings))


@dataclass(frozen=True)
class OffsetRange:
    """Offsets from `first` up to `end` of one partition, and the times wanted of them.

    `bytes` is what reading them takes, as planned. Times are milliseconds; the first is included,
    the second is not.
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
    """The bucket, opened once in this process and kept: tasks that follow find it warm."""
    # A fork has its parent's table, but not the threads that its buckets live on.
    place = (os.getpid(), store)
    if place not in _opened:
        _opened[place] = store.open()
    return _opened[place]


def read_range(
    store: StoreRef, task: OffsetRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records of a task as checked Arrow batches with these columns of the reader's."""
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
    store: StoreRef, task: OffsetRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The same for those who take losses: what was removed meanwhile is passed over.

    Damage, and offsets that are lost without having been removed, are raised all the same.
    """
    while task.first < task.end:
        try:
            yield from read_range(store, task, columns)
            return
        except (NoTopicError, TopicReplacedError):
            return
        except LostRangeError:
            start = _start_of(store, task)
            if start is None:
                return
            if start <= task.first:
                raise
            task = replace(task, first=start)


def _start_of(store: StoreRef, task: OffsetRange) -> int | None:
    """Where the partition begins now; None where its topic is gone."""
    bucket = bucket_of(store)
    try:
        if bucket.topic(task.topic).id != task.topic_id:
            return None
        return bucket.offsets(task.topic, task.partition)[0]
    except NoTopicError:
        return None
