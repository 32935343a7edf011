"""A bucket in memory, a pipeline over it, and somebody who does Spark's work in this process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from neve import runtime
from neve.lake.pipeline.config import PipelineConfig, parse_config
from neve.lake.pipeline.runner import Pipeline
from neve.lake.tables import catalog_of
from neve.log.manifest.records import Skip
from neve.records import reference
from neve.records.reference import build_batch
from support import bucket_samples as samples


class FakeSpark:
    """As much of a session as a pipeline uses."""

    @property
    def sparkContext(self) -> FakeSpark:  # noqa: N802 (Spark's name)
        return self

    def parallelize(self, items: Sequence[Any], _slices: int) -> FakeSpark:
        made = FakeSpark()
        made.items = list(items)
        return made

    def map(self, work: Callable[[Any], Any]) -> FakeSpark:
        return self.parallelize([work(item) for item in self.items], 1)

    def collect(self) -> list[Any]:
        return self.items

    items: list[Any] = []  # noqa: RUF012 (set by parallelize)


class Scene:
    """A bucket with somebody who writes to it, and where its tables are. Close it."""

    def __init__(self, folder: Path) -> None:
        self.url = samples.fresh_url()
        self.folder = folder
        self._runner = runtime.BlockingRunner("scene")
        self._writer = self._runner.run(samples.Writer.start(self.url))

    def config(self, *topics: dict[str, Any], **more: Any) -> PipelineConfig:
        return parse_config(
            {
                "store": self.url,
                "catalog": {
                    "folder": str(self.folder / "catalog"),
                    "warehouse": str(self.folder / "lake"),
                },
                "topics": list(topics),
                **more,
            }
        )

    @contextlib.contextmanager
    def pipeline(self, *topics: dict[str, Any], **more: Any) -> Iterator[Pipeline]:
        with Pipeline(FakeSpark(), self.config(*topics, **more)) as made:  # type: ignore[arg-type]
            yield made

    def produce(
        self, topic: str, values: Iterable[Any], *, partitions: int = 1, timestamp: int = 1000
    ) -> None:
        """Values that are not bytes are written as JSON. They go to the partitions in turn."""
        self._runner.run(self._produce(topic, list(map(bytes_of, values)), partitions, timestamp))

    async def _produce(
        self, topic: str, values: list[bytes | None], partitions: int, timestamp: int
    ) -> None:
        node = self._writer.node
        if node.cluster.state.topic(topic) is None:
            await node.topics.create(topic, partitions)
        for partition in range(partitions):
            rows = [
                reference.Record(place, timestamp, b"k", value)
                for place, value in enumerate(values[partition::partitions])
            ]
            if rows:
                await (
                    node.leader(topic, partition)
                    .log.append(bytearray(build_batch(rows)))
                    .commit.wait()
                )

    def forget(self, topic: str, partition: int, before: int) -> None:
        """What retention does: records below this offset are gone."""
        self._runner.run(self._writer.node.leader(topic, partition).move_start(before))

    def leap(self, topic: str, partition: int, first: int, end: int) -> None:
        """What giving a WAL store up does: records are lost from here on, and the log leaps."""
        self._runner.run(self._leap(topic, partition, Skip(first, end - 1, 1, "", end_known=False)))

    async def _leap(self, topic: str, partition: int, skip: Skip) -> None:
        await self._writer.node.leader(topic, partition).log.manifest.change(lambda _: [skip])
        await self._writer.close()
        self._writer = await samples.Writer.start(self.url)
        await self._writer.node.takeover.lead()

    def widen(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._runner.run(self._writer.node.topics.add_partitions(topic, partitions))

    def delete(self, topic: str) -> None:
        self._runner.run(self._writer.node.topics.delete(topic))

    def close(self) -> None:
        self._runner.run(self._writer.close())
        self._runner.close()

    def rows(self, table: str) -> list[dict[str, Any]]:
        catalog = catalog_of(self.config({"topic": "any"}).catalog, self.url)
        try:
            found = catalog.load_table(f"lake.{table}").scan().to_arrow().to_pylist()
        finally:
            catalog.close()
        return sorted(found, key=lambda row: (row.get("_kafka") or row)["offset"])

    def letters(self, table: str) -> dict[int, str]:
        return {row["offset"]: row["reason"] for row in self.rows(f"{table}_dead_letters")}


def bytes_of(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value).encode()
