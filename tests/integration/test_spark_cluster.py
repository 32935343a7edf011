"""The source on a standalone cluster of two worker processes, each with an executor of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import neve
from neve.lake.spark.java import ensure_java
from support.lake_session import SPARK_TESTS, lake_session
from support.spark_topics import CODECS, Topics, rows_of, sample

pytestmark = SPARK_TESTS

TOPIC = "truth"
TIERED, UNTIERED = 0, 1
"""A partition that is mostly in segments, and one that never fills one."""
WORKERS, TASKS = 2, 6
START_SECONDS = 120
END_SECONDS = 60


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and its workers; the URL of the master. All that they start has ended afterwards."""
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
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["worker.Worker", url, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
    commands = [master, *([*worker, "--work-dir", str(work_of(folder, n))] for n in range(WORKERS))]
    with contextlib.ExitStack() as ending:
        for number, (name, *arguments) in enumerate(commands):
            command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
            with (folder / f"{number}.log").open("wb") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            ending.callback(end, process)
            wait_until(lambda: listens(port), START_SECONDS, "the master does not listen")
        yield url
    left = "executors or their Python are left"
    wait_until(lambda: not any(map(running_in, works_of(folder))), END_SECONDS, left)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def work_of(folder: Path, worker: int) -> Path:
    """Where a worker's executors run, and their Python."""
    return folder / f"work-{worker}"


def works_of(folder: Path) -> list[Path]:
    return [work_of(folder, number) for number in range(WORKERS)]


def running_in(folder: Path) -> list[int]:
    """Processes whose current folder is below this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(reached: Callable[[], bool], seconds: float, otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


@contextlib.contextmanager
def written(folder: Path) -> Iterator[Topics]:
    """A topic in segments, in a roll-up and in the WAL's tail; its broker lives on."""
    topics = Topics.start(folder)
    try:
        topics.create(TOPIC, 2)
        for number, codec in enumerate(CODECS * 2):
            for partition, count in ((TIERED, 100), (UNTIERED, 3)):
                first = 1000 * number + 500 * partition
                rows = [sample(first + i, 600) for i in range(count)]
                topics.produce(TOPIC, partition, rows, codec)
        wait_until(lambda: is_layered(topics), START_SECONDS, "segments and a roll-up are missing")
        yield topics
    finally:
        topics.stop()


def is_layered(topics: Topics) -> bool:
    with neve.open(topics.folder) as bucket:
        tiered, untiered = bucket.plan(TOPIC)
    assert untiered.spans
    assert all(span.tail for span in untiered.spans)
    return tiered.segments_planned >= 2 and any(topics.folder.rglob("*rollup*"))


def tasks_by_executor(spark: Any) -> list[int]:
    """How many tasks each executor has ended, the driver left out."""
    listed = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    executors = [listed.apply(number) for number in range(listed.size())]
    return [each.completedTasks() for each in executors if each.id() != "driver"]


def test_two_workers_read_everything_once(tmp_path: Path) -> None:
    own = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        # No task before both executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": 1,
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_SECONDS}s",
    }
    with (
        cluster(tmp_path) as master,
        written(tmp_path) as topics,
        lake_session(tmp_path / "spark", master=master, **own) as spark,
    ):
        read = spark.read.format("neve").options(subscribe=TOPIC, includeHeaders="true")
        found = rows_of(read.option("minPartitions", str(TASKS)).load(topics.store))
        assert all(map(running_in, works_of(tmp_path))), "a worker has no executor"
        wait_until(
            lambda: sum(tasks_by_executor(spark)) >= TASKS, END_SECONDS, "tasks were not counted"
        )
        counts = tasks_by_executor(spark)
    assert len(counts) == WORKERS
    assert all(counts), f"one of the two did all the work: {counts}"
    sent = topics.of(TOPIC)
    assert len(found) == len(sent)
    for partition in (TIERED, UNTIERED):
        offsets = sorted(offset for number, offset in found if number == partition)
        assert offsets == list(range(len(offsets)))
    assert found == sent  # key, value, headers and time of each, which is more than a checksum
