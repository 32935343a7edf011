"""What runs in an environment with an older PySpark: reads a bucket, and prints what it found.

`python older_spark_reads.py first|second '{"store": …, "folder": …, "earlier": …, "bootstrap": …}'`
The second run goes on where the streams of the first one ended.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.spark_topics import Sent, rows_of

TOPIC = "orders"
PUSHED = "partition = 1 and offset >= 100"
LIMIT = 100


def fingerprint(rows: Mapping[tuple[int, int], Sent]) -> dict[str, Any]:
    """Counts, the offsets' ends, and a checksum of everything."""
    partitions = sorted({partition for partition, _ in rows})
    offsets = {p: sorted(o for q, o in rows if q == p) for p in partitions}
    text = repr([(place, tuple(rows[place])) for place in sorted(rows)])
    return {
        "rows": len(rows),
        "offsets": [[p, offsets[p][0], offsets[p][-1]] for p in partitions],
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


class Reads:
    """The reads of one session."""

    def __init__(self, spark: Any, store: str, folder: Path) -> None:
        self._spark = spark
        self._store = store
        self._folder = folder

    def batch(self, topic: str = TOPIC, **options: str) -> Any:
        read = self._spark.read.format("neve").options(subscribe=topic, includeHeaders="true")
        return read.options(**options).load(self._store)

    def pushed(self) -> dict[str, Any]:
        """Pushed-down filters, while a segment of a partition that they leave out is away."""
        first = min(Path(self._store).glob(f"topics/{TOPIC}.*/*0/segment-*.kfs"))
        away = first.rename(first.with_suffix(".away"))
        try:
            whole = told_by(lambda: self.batch().where(PUSHED).count())
            found = fingerprint(rows_of(self.batch(pushFilters="true").where(PUSHED)))
        finally:
            away.rename(first)
        return {"found": found, "without": whole}

    def stream(self, name: str, store: str = "", **options: str) -> list[int]:
        """Run to the end of the log, into files; the sizes of its batches."""
        read = self._spark.readStream.format("neve").options(subscribe=TOPIC, includeHeaders="true")
        writer = read.options(**options).load(store or self._store).writeStream.format("parquet")
        place = self._folder / name
        writer = writer.option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(place / "output"))
        query.awaitTermination(300)
        assert not query.isActive
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def streamed(self, name: str) -> dict[str, Any]:
        return fingerprint(rows_of(self._spark.read.parquet(str(self._folder / name / "output"))))


def told_by(call: Any) -> str:
    """What goes wrong, or nothing."""
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


def first(reads: Reads, _given: dict[str, str]) -> dict[str, Any]:
    limits: list[int] = []

    def limited() -> None:
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(LIMIT)}
        limits.extend(reads.stream("limited", **options))

    return {
        "batch": fingerprint(rows_of(reads.batch())),
        "pushed": reads.pushed(),
        "limit": told_by(limited),
        "limits": limits,
        "batches": reads.stream("earliest", startingOffsets="earliest"),
        "stream": reads.streamed("earliest"),
        "latest": reads.stream("latest"),
    }


def second(reads: Reads, given: dict[str, str]) -> dict[str, Any]:
    batches = reads.stream("earliest", startingOffsets="earliest")
    again = reads.stream("earliest", startingOffsets="earliest")
    reads.stream("latest")
    beyond = json.dumps({TOPIC: {"0": 5000, "1": 0}})
    write = reads.batch(toOffset="50").drop("topic").write.format("neve").mode("append")
    bootstrap = {"kafka.bootstrap.servers": given["bootstrap"]}
    write.options(topic="written", **bootstrap).save()
    return {
        "batches": batches,
        "again": again,
        "stream": reads.streamed("earliest"),
        "latest": reads.streamed("latest"),
        "written": reads.batch("written").count(),
        "earlier": told_by(lambda: reads.stream("earliest", given["earlier"])),
        "beyond": told_by(lambda: reads.stream("beyond", startingOffsets=beyond)),
    }


def main() -> None:
    import pyspark

    import neve.lake

    step, given = sys.argv[1], json.loads(sys.argv[2])
    folder = Path(given["folder"])
    local = {"spark.local.dir": str(folder / "local")}
    spark = neve.lake.session("neve-older", master="local[2]", **local)
    try:
        reads = Reads(spark, given["store"], folder)
        found = {"first": first, "second": second}[step](reads, given)
    finally:
        spark.stop()
    print(json.dumps({"version": pyspark.__version__, **found}))


if __name__ == "__main__":
    main()
