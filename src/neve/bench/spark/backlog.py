"""Compares a pipeline that writes a backlog to a table with pyarrow writing the same rows.

pyarrow does only a part of the work: it has the decoded rows in memory, and writes them as Parquet
on two cores with the same compression. The pipeline reads the records from the bucket, decodes
them, writes and commits. They run alternately on one machine; starting Spark is not measured. A
pipeline chooses which columns get a dictionary, so pyarrow also runs with the pipeline's choice.
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
from neve.lake.spark.session import PIPELINE_SETTINGS
from neve.lake.tables import catalog_of
from neve.lake.tables.parquet_options import dictionary_columns

ROUNDS_DEFAULT = 5
SHARE = 0.5
# Large compared to the records not yet tiered when the broker stops, and to the cost of one job.
SHAPES = (Shape("raw", 12_000_000, text_of(100)), Shape("json", 12_000_000, order))
FORMATS: dict[str, dict[str, Any]] = {
    "raw": {"format": "raw"},
    "json": {"format": "json", "schema": FIELDS},
}
ROW_GROUP_ROWS = 250_000


def measure(
    rounds: int = ROUNDS_DEFAULT, scale: float = 1.0, on_progress: Progress = lambda *_: None
) -> list[dict[str, Any]]:
    """Measure each shape `rounds` times. Returns each figure with its rounds and its bound."""
    shapes = [replace(each, count=int(each.count * scale)) for each in SHAPES]
    rows: list[dict[str, Any]] = []
    done, total = 0, len(shapes) * (rounds + 1)
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as place:
        folder = Path(place)
        store = str(folder / "bucket")
        with serve(store) as broker:
            for shape in shapes:
                produce(broker.address, shape)
        with local_spark(folder, settings=PIPELINE_SETTINGS) as spark:
            for shape in shapes:
                on_progress(done := done + 1, total)
                fill = _Filling(spark, store, shape)
                fill.once()  # not measured: Spark's workers start
                turns = _Turns(fill, folder)
                for _ in range(rounds):
                    on_progress(done := done + 1, total)
                    turns.take()
                rows += _rows(shape, turns.seconds)
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
        """Return the rows of the last table, decoded and in memory."""
        table = catalog_of({}, self._store).load_table(f"lake.{self._table()}")
        return table.scan().to_arrow().combine_chunks()


Dictionaries = bool | list[str]
"""The columns with a dictionary, in pyarrow's form."""


class _Turns:
    """Runs the pipeline and pyarrow alternately, and collects their times."""

    def __init__(self, fill: _Filling, folder: Path) -> None:
        self._fill = fill
        self._folder = folder
        self._rows = fill.rows()
        self._writers: dict[str, Dictionaries] = {
            "pyarrow": True,
            "tuned": dictionary_columns(self._rows),
        }
        self.seconds: dict[str, list[float]] = {name: [] for name in ("lake", *self._writers)}

    def take(self) -> None:
        self.seconds["lake"].append(self._fill.once())
        for name, dictionaries in self._writers.items():
            with tempfile.TemporaryDirectory(dir=self._folder) as place:
                self.seconds[name].append(_write(self._rows, Path(place), dictionaries))


def _write(rows: pa.Table, folder: Path, dictionaries: Dictionaries) -> float:
    """Write one file per core, in parallel. Returns the seconds taken."""
    started = runtime.monotonic()
    runtime.run(_write_parts(list(_parts(rows, CORES)), folder, dictionaries))
    return runtime.monotonic() - started


async def _write_parts(parts: list[pa.Table], folder: Path, dictionaries: Dictionaries) -> None:
    await runtime.gather(
        *(
            runtime.offload(_write_file, part, folder / f"{number}.parquet", dictionaries)
            for number, part in enumerate(parts)
        )
    )


def _write_file(rows: pa.Table, name: Path, dictionaries: Dictionaries) -> None:
    pq.write_table(
        rows,
        name,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=dictionaries,
    )


def _parts(rows: pa.Table, count: int) -> Iterator[pa.Table]:
    size = -(-rows.num_rows // count)
    for first in range(0, rows.num_rows, size):
        yield rows.slice(first, size)


def _rows(shape: Shape, times: dict[str, list[float]]) -> Iterator[dict[str, Any]]:
    wanted = Bound(
        f"backlog.{shape.name}", "speed against pyarrow writing the decoded rows", at_least=SHARE
    )
    yield wanted.row(_ratios(times["pyarrow"], times["lake"]))
    shown = Bound(f"backlog.{shape.name}.tuned", "the same, with the pipeline's dictionaries")
    yield shown.row(_ratios(times["tuned"], times["lake"]))
    for name, seconds in sorted(times.items()):
        rates = [shape.count / each for each in seconds]
        yield Bound(f"{name}.{shape.name}.records", "records a second").row(rates)


def _ratios(theirs: list[float], ours: list[float]) -> list[float]:
    return [each / own for each, own in zip(theirs, ours, strict=True)]
