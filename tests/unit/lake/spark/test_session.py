"""The settings of a session, without starting one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from neve.lake.spark.session import WAREHOUSE, settings_for


def test_what_a_caller_says_wins() -> None:
    given = {"spark.log.level": "WARN", "spark_executor_memory": "4g", "spark.ui.enabled": True}
    found = settings_for("local[4]", given)
    assert found["spark.log.level"] == "WARN"
    assert found["spark.executor.memory"] == "4g"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.shuffle.partitions"] == "8"


def test_a_cluster_keeps_what_is_for_one_machine_away() -> None:
    found = settings_for("spark://host:7077", {})
    assert "spark.driver.host" not in found
    assert "spark.sql.shuffle.partitions" not in found
    assert WAREHOUSE not in found
    assert found["spark.python.daemon.module"] == "neve.lake.spark.worker_daemon"


def test_tables_that_spark_keeps_do_not_lie_in_the_working_directory() -> None:
    folder = Path(settings_for("local[*]", {})[WAREHOUSE])
    assert folder.parent == Path(tempfile.gettempdir())
    assert folder == Path(settings_for("local", {})[WAREHOUSE]), "one for a process"
    for name in (WAREHOUSE, "spark_sql_warehouse_dir"):
        assert settings_for("local[*]", {name: "/mine"})[WAREHOUSE] == "/mine"


def test_the_folder_for_tables_goes_with_the_process_unless_it_is_used(tmp_path: Path) -> None:
    script = (
        "import sys; from neve.lake.spark.session import settings_for, WAREHOUSE; "
        "from pathlib import Path; "
        "at = Path(settings_for('local', {})[WAREHOUSE]); assert at.is_dir(); "
        "sys.argv[1:] and (at / 'table').mkdir(); print(at)"
    )
    for used in ([], ["used"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *used],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert Path(done.stdout.strip()).exists() == bool(used)


@pytest.mark.soak  # a JVM takes long to start
def test_a_session_leaves_nothing_in_the_working_directory(tmp_path: Path) -> None:
    working, temporary = tmp_path / "working", tmp_path / "temporary"
    working.mkdir()
    temporary.mkdir()
    script = (
        "from neve.lake import session; spark = session(master='local[1]'); "
        "spark.sql('SHOW DATABASES').collect(); spark.stop()"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=working,
        env={**os.environ, "TMPDIR": str(temporary)},
        timeout=300,
        check=True,
    )
    assert list(working.iterdir()) == []
    assert list(temporary.glob("neve-*")) == []


def test_a_task_uses_the_memory_of_columns_that_were_dropped_again() -> None:
    script = """
import resource, sys
import numpy as np
import pyarrow as pa
from neve.lake.spark.worker_daemon import preload
preload(sys.argv[1])

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        np.ones(5_000_000)  # more than glibc would keep by itself
        pa.repeat(1, 4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(pa.default_memory_pool().backend_name, faults())
"""
    backends, faults = {}, {}
    for module in ("pyspark.worker", "pyspark.sql.worker.create_data_source"):
        done = subprocess.run(
            [sys.executable, "-c", script, module], capture_output=True, text=True, check=True
        )
        backends[module], counted = done.stdout.split()
        faults[module] = int(counted)
    tasks, others = faults.values()
    if len(set(backends.values())) == 1:
        pytest.skip("the C library of this system is not glibc")
    assert backends["pyspark.worker"] == "system"
    assert tasks < others / 4  # where pages are large, there are few faults at all


def test_the_lake_is_imported_without_spark_and_the_daemon_loads_the_kernel_quietly() -> None:
    script = """
import sys
import neve.lake.spark.java
from neve.lake import session
assert callable(session)
assert "pyspark" not in sys.modules
from neve.lake.spark.worker_daemon import TASK_WORKER, preload
preload("pyspark.sql.worker.create_data_source")
assert "neve.records.kernel" not in sys.modules
preload(TASK_WORKER)
assert "neve.records.kernel" in sys.modules
import gc, threading
assert gc.get_freeze_count() > 0
assert threading.active_count() == 1
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "Spark reads a port from standard output"
