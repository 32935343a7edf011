"""How fast a pipeline takes a backlog into a table, against pyarrow writing the same rows.

pyarrow has the easy half: the rows lie decoded in memory, and both cores do nothing but write them
as Parquet, with the same compression. The pipeline reads them from the bucket, decodes, writes and
commits. Both in turns, on one machine; Spark runs already.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neve import runtime
from neve.bench.broker.compare import Bound
from neve.bench.broker.processes import serve
from neve.bench.kafka.measure import BenchError
from neve.bench.spark.records import FIELDS, Progress, Shape, order, produce, text_of
from neve.bench.spark.sessions import CORES, local_spark
from neve.lake.pipeline.config import parse_config
from neve.lake.pipeline.runner import Pipeline
from neve.lake.tables import catalog_of

ROUNDS_DEFAULT = 5
SHARE = 0.5
SHAPES = (Shape("raw", 4_000_000, text_of(100)), Shape("json", 2_000_000, order))
FORMATS: dict[str, dict[str, Any]] = {
    "raw": {"format": "raw"},
    "json": {"format": "json", "schema": FIELDS},
}
ROW_GROUP_ROWS = 250_000


def measure(
    rounds: int = ROUNDS_DEFAULT, scale: float = 1.0, on_progress: Progress = lambda *_: None
) -> list[dict[str, Any]]:
    """Measure all shapes in turns; each figure with its rounds and its bound."""
    shapes = [replace(each, count=int(each.count * scale)) for each in SHAPES]
    rows: list[dict[str, Any]] = []
    done, total = 0, len(shapes) * (rounds + 1)
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as place:
        folder = Path(place)
        store = str(folder / "bucket")
        with serve(store) as broker:
            for shape in shapes:
                produce(broker.address, shape)
        with local_spark(folder) as spark:
            for shape in shapes:
                on_progress(done := done + 1, total)
                fill = _Filling(spark, store, shape)
                fill.once()  # a first time, in which workers start
                decoded = fill.rows()
                times: dict[str, list[float]] = {"lake": [], "pyarrow": []}
                for number in range(rounds):
                    on_progress(done := done + 1, total)
                    times["lake"].append(fill.once())
                    times["pyarrow"].append(_write(decoded, folder / f"{shape.name}-{number}"))
                rows += _rows(shape, times)
    return rows


class _Filling:
    """A pipeline that fills a new table each time."""

    def __init__(self, spark: Any, store: str, shape: Shape) -> None:
        self._spark = spark
        self._store = store
        self._shape = shape
        self._tables = 0

    def once(self) -> float:
        self._tables += 1
        config = parse_config(
            {
                "store": self._store,
                "topics": [
                    {
                        "topic": self._shape.name,
                        "table": self._table(),
                        "value": FORMATS[self._shape.name],
                    }
                ],
            }
        )
        started = runtime.monotonic()
        with Pipeline(self._spark, config) as pipeline:
            succeeded = pipeline.run_once()
            seconds = runtime.monotonic() - started
            (report,) = pipeline.reports
        if not succeeded or report.rows != self._shape.count or report.bad:
            raise BenchError(f"{self._shape.name}: the pipeline did something else: {report}")
        return seconds

    def _table(self) -> str:
        return f"{self._shape.name}_{self._tables}"

    def rows(self) -> pa.Table:
        """What the last table holds, decoded and in memory."""
        table = catalog_of({}, self._store).load_table(f"lake.{self._table()}")
        return table.scan().to_arrow().combine_chunks()


def _write(rows: pa.Table, folder: Path) -> float:
    """Both cores write, each its half."""
    folder.mkdir()
    started = runtime.monotonic()
    runtime.run(_write_parts(list(_parts(rows, CORES)), folder))
    return runtime.monotonic() - started


async def _write_parts(parts: list[pa.Table], folder: Path) -> None:
    await runtime.gather(
        *(
            runtime.offload(_write_file, part, folder / f"{number}.parquet")
            for number, part in enumerate(parts)
        )
    )


def _write_file(rows: pa.Table, name: Path) -> None:
    pq.write_table(rows, name, compression="zstd", row_group_size=ROW_GROUP_ROWS)


def _parts(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    size = -(-rows.num_rows // count)
    for first in range(0, rows.num_rows, size):
        yield rows.slice(first, size)


def _rows(shape: Shape, times: dict[str, list[float]]) -> Iterator[dict[str, Any]]:
    ratio = [theirs / ours for theirs, ours in zip(times["pyarrow"], times["lake"], strict=True)]
    yield Bound(
        f"backlog.{shape.name}", "speed against pyarrow writing the decoded rows", at_least=SHARE
    ).row(ratio)
    for name, seconds in sorted(times.items()):
        rates = [shape.count / each for each in seconds]
        yield Bound(f"{name}.{shape.name}.records", "records a second").row(rates)
