"""The demonstration's second half: Iceberg tables and SQL on the same bucket, with Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from neve import runtime
from neve.cli.demo_kafka import DemoError, say
from neve.cli.spark import quiet_spark
from neve.lake import Pipeline
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.query.engine import Engine
from neve.lake.tables import catalog_of

PIPELINE = """\
store: {store}
topics:
  - topic: orders
    value: {{format: json}}
  - topic: customers
    value: {{format: json}}
"""
QUESTION = """\
SELECT c.city, count(*) AS orders, sum(o.value:cents::bigint) / 100 AS euros
FROM orders o JOIN lake.customers c ON o.value:customer::int = c.id
GROUP BY c.city ORDER BY c.city"""


class Lake:
    """A pipeline and a SQL engine in one Spark session."""

    def __init__(self, spark: Any, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._file = Path(folder) / "pipeline.yaml"
        self._file.write_text(PIPELINE.format(store=folder), encoding="utf-8")

    def fill(self) -> int:
        """Do what `neve lake run --once` does. Returns the rows added to the table of orders."""
        started = runtime.monotonic()
        with Pipeline(self._spark, self._file) as pipeline:
            if not pipeline.run_once():
                raise DemoError(f"the pipeline failed: {pipeline.reports}")
            orders, customers = pipeline.reports
        say(
            f"A pipeline wrote {orders.rows} rows to {orders.table} and {customers.rows} to "
            f"{customers.table} in {runtime.monotonic() - started:.1f} s, with the offsets in the "
            "same commits."
        )
        return orders.rows

    def ask(self) -> list[dict[str, Any]]:
        """Do what `neve sql` does."""
        say("A query that joins the topic, up to its last record, with the table of customers:")
        print("  " + QUESTION.replace("\n", "\n  ") + "\n")
        started = runtime.monotonic()
        catalog = catalog_of({}, self._folder)
        with Engine(self._spark, StoreRef(self._folder), catalog) as engine:
            result = engine.execute(QUESTION, tag="demo")
            rows: list[dict[str, Any]] = pa.Table.from_batches(result.batches()).to_pylist()
        for row in rows:
            print(f"  {row['city']:<10} {row['orders']:>6} orders {row['euros']:>12.2f} euros")
        print(f"\n  in {runtime.monotonic() - started:.1f} s, without a broker", flush=True)
        return rows


@contextmanager
def lake(folder: str) -> Iterator[Lake]:
    """Start Spark for the demonstration and stop it at the end."""
    started = runtime.monotonic()
    with quiet_spark("neve-demo", "local[2]") as spark:
        say(
            f"Spark started in {runtime.monotonic() - started:.1f} s. It reads the folder directly."
        )
        yield Lake(spark, folder)
