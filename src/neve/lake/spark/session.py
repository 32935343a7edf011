"""`neve.lake.session()`: a Spark session with the settings that Neve's source is at its best with.

None of them is required: the source works on any session. docs/users/spark.md says what each is
for.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from neve.lake.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PIPELINE_SETTINGS", "SparkSession", "session", "settings_for", "stop_session"]

SOURCE_SETTINGS = {
    # Filters on topic, partition, offset and timestamp reach the source.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Workers are forks of a process that has the decoder loaded.
    "spark.python.daemon.module": "neve.lake.spark.worker_daemon",
    # Batches go from worker to JVM without TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Times are shown and compared as they are in records.
    "spark.sql.session.timeZone": "UTC",
}
QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_SETTINGS = {
    # A machine whose own name does not resolve is no reason not to start.
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
PIPELINE_SETTINGS = {
    # Python does a pipeline's work, and the JVM hands it out. Compiling that to the last took the
    # workers up to a fifth of two cores. What users want of a JVM comes behind it, and wins.
    "spark.driver.defaultJavaOptions": ("-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"),
}
"""For `session(**PIPELINE_SETTINGS)` and nothing else but a pipeline: queries run in the JVM."""
WAREHOUSE = "spark.sql.warehouse.dir"
_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?")


def session(app_name: str = "neve", *, master: str = "local[*]", **conf: object) -> SparkSession:
    """A tuned Spark session, on a Java that is found or brought along.

    `conf` are further Spark settings (`**{"spark.executor.memory": "4g"}`, or
    `spark_executor_memory="4g"`); they win over Neve's. A session that exists is given the settings
    that can still change, and is returned.
    """
    # First: who lacks Spark need not look for a Java.
    from pyspark.sql import SparkSession

    ensure_java()
    # Spark would take the first python3 of the PATH, which need not have Neve.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _LOCAL.fullmatch(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings_for(master, conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stop_session(spark: SparkSession) -> None:
    """Stop a session whose JVM may have ended already."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    with contextlib.suppress(OSError, Py4JError):
        spark.stop()


def settings_for(master: str, conf: dict[str, object]) -> dict[str, str]:
    """All settings of a session for this master; those of the caller last."""
    found = {**SOURCE_SETTINGS, **QUIET_SETTINGS}
    local = _LOCAL.fullmatch(master)
    if local is not None:
        found |= LOCAL_SETTINGS
        cores = _cores(local)
        # Two hundred parts, Spark's default, cost more than they bring on one machine.
        found["spark.sql.shuffle.partitions"] = str(max(2, 2 * cores))
    for name, value in conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found[name.replace("_", ".") if name.startswith("spark_") else name] = text
    if local is not None and WAREHOUSE not in found:
        found[WAREHOUSE] = _warehouse()
    return found


@functools.cache
def _warehouse() -> str:
    """A folder for the tables that Spark keeps itself: it would make one in the working directory.

    It goes with the process, unless somebody saved a table in it.
    """
    folder = tempfile.mkdtemp(prefix="neve-spark-warehouse-")
    atexit.register(_remove_empty, folder)
    return folder


def _remove_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        Path(folder).rmdir()


def _cores(local: re.Match[str]) -> int:
    wanted = local[2]
    return (os.cpu_count() or 1) if wanted == "*" else int(wanted or 1)
