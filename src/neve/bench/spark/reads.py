"""Compares Spark's speed of reading a topic with Neve, with its Kafka source, and as Parquet.

The same records are in a bucket, in a Kafka broker and in Parquet files. Spark reads all columns
and discards them (`noop`), alternately from each. Before that, the rows are compared.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neve import runtime
from neve.bench.broker.compare import Bound
from neve.bench.broker.processes import serve
from neve.bench.kafka.measure import BenchError
from neve.bench.spark import peer
from neve.bench.spark.records import Progress, Shape, produce, text_of
from neve.bench.spark.sessions import CORES, local_spark

ROUNDS_DEFAULT = 5
SHAPES = (Shape("100", 4_000_000, text_of(100)), Shape("1000", 800_000, text_of(1000)))
KAFKA_TIMES, PARQUET_SHARE = 2.0, 0.30
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
# Sums of hashes do not depend on the order of rows.
FINGERPRINT = (
    "count(*) AS records",
    f"sum(cast(xxhash64({', '.join(COLUMNS)}) AS decimal(38, 0))) AS fingerprint",
)

Reader = Callable[[], Any]


@dataclass(frozen=True)
class Ways:
    """Functions that create a DataFrame over the same records, called for each read."""

    neve: Reader
    parquet: Reader
    kafka: Reader | None

    def named(self) -> dict[str, Reader]:
        found = {"neve": self.neve, "parquet": self.parquet}
        return found if self.kafka is None else {**found, "kafka": self.kafka}


def run(
    rounds: int = ROUNDS_DEFAULT,
    scale: float = 1.0,
    on_progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Measure each shape `rounds` times. Returns each figure with its rounds and its bound."""
    shapes = [replace(each, count=int(each.count * scale)) for each in SHAPES]
    rows: list[dict[str, Any]] = []
    missing = ""
    done, total = 0, len(shapes) * (rounds + 2)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="neve-bench-")))
        store = str(folder / "bucket")
        with serve(store) as broker:
            for shape in shapes:
                produce(broker.address, shape)
        try:
            jars = peer.connector_jars()
            kafka: str | None = stack.enter_context(peer.kafka(folder))
        except peer.NoPeerError as error:
            jars, kafka, missing = [], None, str(error)
        spark = stack.enter_context(local_spark(folder, jars))
        for shape in shapes:
            on_progress(done := done + 1, total)
            ways = _ways(spark, shape, store, folder, kafka)
            _compare(shape, ways)
            seconds: dict[str, list[float]] = {name: [] for name in ways.named()}
            for read in ways.named().values():
                _timed(read)  # not measured: code is compiled
            for _ in range(rounds):
                on_progress(done := done + 1, total)
                for name, read in ways.named().items():
                    seconds[name].append(_timed(read))
            rows += _rows(shape, seconds)
    return {
        "benchmark": "spark",
        "cores": CORES,
        "rounds": rounds,
        "without_kafka": missing,
        "rows": rows,
        "passed": all(row["ok"] for row in rows),
    }


def _ways(spark: Any, shape: Shape, store: str, folder: Path, kafka: str | None) -> Ways:
    def neve() -> Any:
        return (
            spark.read.format("neve").option("store", store).option("subscribe", shape.name).load()
        )

    parquet = str(folder / f"{shape.name}.parquet")
    neve().write.parquet(parquet)
    if kafka is None:
        return Ways(neve, lambda: spark.read.parquet(parquet), None)
    produce(kafka, shape)
    return Ways(
        neve,
        lambda: spark.read.parquet(parquet),
        lambda: (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", kafka)
            .option("subscribe", shape.name)
            .load()
        ),
    )


def _compare(shape: Shape, ways: Ways) -> None:
    """Raise BenchError unless all readers return the same rows, as many as the shape has."""
    found = {
        name: tuple(read().selectExpr(*FINGERPRINT).first()) for name, read in ways.named().items()
    }
    if len(set(found.values())) != 1 or found["neve"][0] != shape.count:
        raise BenchError(f"{shape.name}: the rows are not the same: {found}")


def _timed(read: Reader) -> float:
    started = runtime.monotonic()
    read().write.format("noop").mode("overwrite").save()
    return runtime.monotonic() - started


def _rows(shape: Shape, seconds: dict[str, list[float]]) -> Iterator[dict[str, Any]]:
    def ratio(other: str) -> list[float]:
        return [theirs / ours for theirs, ours in zip(seconds[other], seconds["neve"], strict=True)]

    if "kafka" in seconds:
        yield Bound(
            f"kafka.{shape.name}", "speed against Spark's Kafka source", at_least=KAFKA_TIMES
        ).row(ratio("kafka"))
    yield Bound(
        f"parquet.{shape.name}", "speed against Spark's Parquet", at_least=PARQUET_SHARE
    ).row(ratio("parquet"))
    for name, times in sorted(seconds.items()):
        rates = [shape.count / each for each in times]
        yield Bound(f"{name}.{shape.name}.records", "records a second").row(rates)
