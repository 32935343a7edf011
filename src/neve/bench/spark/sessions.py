"""The local Spark session of a benchmark, with two cores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from neve.lake import session

CORES = 2


@contextlib.contextmanager
def local_spark(
    folder: Path, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Run a Spark session with its temporary files in `folder`. Stops it at the end."""
    conf: dict[str, object] = {
        "spark.driver.memory": "4g",
        "spark.local.dir": str(folder / "tmp"),
        **(settings or {}),
    }
    if jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    spark = session("neve-bench", master=f"local[{CORES}]", **conf)
    try:
        yield spark
    finally:
        spark.stop()
