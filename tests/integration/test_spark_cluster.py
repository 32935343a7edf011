"""The source on a standalone cluster of two worker processes, each with an executor of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lake_session import SPARK_TESTS, lake_session
from neve.lake.java import ensure_java
from spark_topics import CODECS, Topics, rows_of, sample

pytestmark = [*SPARK_TESTS, pytest.mark.soak]

START_SECONDS = 120


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers; the URL of the master."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(ensure_java()),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    spark_class = home / "bin" / "spark-class"
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["worker.Worker", url, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
    commands = [master] + [[*worker, "--work-dir", str(folder / f"work-{n}")] for n in range(2)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, (name, *arguments) in enumerate(commands):
            command = [spark_class, f"org.apache.spark.deploy.{name}", *arguments]
            with (folder / f"{number}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            wait_for_port(port)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


def wait_for_port(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError("the master does not listen")


def test_two_workers_read_everything_once(tmp_path: Path) -> None:
    def places(batches: Any) -> Any:  # in here, so that workers need not find this file
        import pyarrow as pa

        rows = sum(batch.num_rows for batch in batches)
        yield pa.record_batch({"place": [str(Path.cwd())], "rows": [rows]})

    topics = Topics.start(tmp_path)
    try:
        topics.create("truth", 2)
        for number, codec in enumerate(CODECS * 2):
            for partition in range(2):
                rows = [sample(1000 * number + i, 600) for i in range(200)]
                topics.produce("truth", partition, rows, codec)
        own = {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": 1,
            "spark.scheduler.minRegisteredResourcesRatio": 1,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_SECONDS}s",
        }
        with (
            cluster(tmp_path) as master,
            lake_session(tmp_path / "spark", master=master, **own) as spark,
        ):
            read = spark.read.format("neve").options(subscribe="truth", includeHeaders="true")
            frame = read.option("minPartitions", "12").load(topics.store)
            assert rows_of(frame) == topics.of("truth")
            found = frame.select("offset").mapInArrow(places, "place string, rows long").collect()
            assert sum(row["rows"] for row in found) == len(topics.of("truth"))
            assert len({row["place"] for row in found}) == 2, "one of the two did all the work"
    finally:
        topics.stop()
