"""Spark sessions: Neve's own, small, with all their files in a temporary folder.

Use it for a module-scoped fixture: a JVM starts slowly, and a process has only one:

    pytestmark = SPARK_TESTS

    @pytest.fixture(scope="module")
    def spark(tmp_path_factory):
        with lake_session(tmp_path_factory.mktemp("spark")) as session:
            yield session
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import neve.lake
from support.quick_jvm import QUICK_JVM

SPARK_TESTS = [
    pytest.mark.slow,
    # pyspark lets go of sockets that it has not closed, whenever that happens to be noticed.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SMALL = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.executor.extraJavaOptions": QUICK_JVM,  # a driver's come from the environment
}


@contextlib.contextmanager
def lake_session(folder: Path, *, master: str = "local[2]", **conf: object) -> Iterator[Any]:
    """A session whose files lie in `folder`; stopped, with its JVM, at the end."""
    places = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    before = set(map(id, _open_sockets()))
    with warnings.catch_warnings():
        # What pyspark itself leaves open or calls by old names is not what tests are about.
        warnings.simplefilter("ignore")
        spark = neve.lake.session("neve-tests", master=master, **{**SMALL, **places, **conf})
        try:
            yield spark
        finally:
            spark.stop()
            _end_jvm()
            # Its sockets are left unclosed: noticed here, and not in a test that follows.
            del spark
            gc.collect()
            for each in _open_sockets():
                if id(each) not in before:
                    each.close()


def _open_sockets() -> list[socket.socket]:
    # By type: to ask a weak proxy what it is an instance of fails where its object is gone.
    found = [each for each in gc.get_objects() if issubclass(type(each), socket.socket)]
    return [each for each in found if each.fileno() >= 0]


def _end_jvm() -> None:
    """End the gateway's process, so that the next session starts with its own settings."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    os.environ.pop("PYSPARK_GATEWAY_PORT", None)
    if process is not None:
        process.stdin.close()
        process.wait(60)
