"""`Bucket`: the blocking reader, over an event loop in its own thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket, GivenSettings, LayoutName, Partitions, Topics, Url
from neve.bucket.decode import COLUMNS
from neve.bucket.info import BucketInfo
from neve.bucket.model import LATEST, Bounds, Moment, Offsets, Record, TopicInfo
from neve.bucket.planning import PartitionPlan

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def open_bucket(url: Url, *, layout: LayoutName = "neve", settings: GivenSettings = None) -> Bucket:
    """Open a bucket for reading. Public as `neve.open`."""
    runner = runtime.BlockingRunner("neve-bucket")
    try:
        return Bucket(
            runner.run(AsyncBucket.connect(url, layout=layout, settings=settings)), runner
        )
    except BaseException:
        runner.close()
        raise


class Bucket:
    """A bucket that is open for reading. Close it, or use it in `with`. Any thread may use it."""

    def __init__(self, bucket: AsyncBucket, runner: runtime.BlockingRunner) -> None:
        self._bucket = bucket
        self._runner = runner

    @property
    def skipped(self) -> int:
        """The number of offsets that reads have passed over: skipped, or held by no object."""
        return self._bucket.skipped

    def topics(self) -> list[TopicInfo]:
        """Return all topics, by name."""
        return self._runner.run(self._bucket.topics())

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises NoTopicError if it does not exist."""
        return self._runner.run(self._bucket.topic(name))

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset of its next record."""
        return self._runner.run(self._bucket.offsets(topic, partition))

    def describe(self) -> BucketInfo:
        """Describe the bucket: its topics, partitions and streams."""
        return self._runner.run(self._bucket.describe())

    def plan(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = None,
        to_offset: int | Mapping[int, int] | None = None,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
    ) -> list[PartitionPlan]:
        """Return what a selection would read of each partition, without reading it."""
        return self._runner.run(
            self._bucket.plan(
                topic,
                partitions,
                from_offset=from_offset,
                to_offset=to_offset,
                from_timestamp=from_timestamp,
                to_timestamp=to_timestamp,
            )
        )

    def read(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = None,
        to_offset: int | Mapping[int, int] | None = None,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
    ) -> Iterator[Record]:
        """Yield every committed record of a selection, up to the end when reading begins."""
        bounds = Bounds(from_offset, to_offset, from_timestamp, to_timestamp)
        return self._flat(self._bucket.read_lists(topic, partitions, bounds))

    def arrow(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = None,
        to_offset: int | Mapping[int, int] | None = None,
        from_timestamp: Moment | None = None,
        to_timestamp: Moment | None = None,
        columns: Sequence[str] = COLUMNS,
        topic_id: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the same records as Arrow batches, each of one partition.

        The next batch is decoded while the caller uses one, so up to two more are in memory.

        Raises TopicReplacedError if the topic's id is not `topic_id`, if that is given.
        """
        batches = self._bucket.arrow(
            topic,
            partitions,
            from_offset=from_offset,
            to_offset=to_offset,
            from_timestamp=from_timestamp,
            to_timestamp=to_timestamp,
            columns=columns,
            topic_id=topic_id,
        )
        return self._runner.iterate(runtime.one_ahead(batches))

    def follow(
        self,
        topic: Topics = None,
        partitions: Partitions = None,
        *,
        from_offset: Offsets = LATEST,
        to_offset: int | Mapping[int, int] | None = None,
    ) -> Iterator[Record]:
        """Yield records as they are committed, by default from the current end on."""
        bounds = Bounds(from_offset, to_offset)
        return self._flat(self._runner.run(self._bucket.follow_lists(topic, partitions, bounds)))

    def _flat(self, lists: AsyncGenerator[list[Record], None]) -> Iterator[Record]:
        for rows in self._runner.iterate(lists):
            yield from rows

    def close(self) -> None:
        """End all reads and release connections. Open iterators raise ClosedError."""
        if not self._runner.closed:
            try:
                self._runner.end_iterations()
                self._runner.run(self._bucket.close())
            finally:
                self._runner.close()

    def __enter__(self) -> Bucket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
