"""Spark's daemon for Python workers, which imports what every task needs before it forks.

Spark starts this module instead of `pyspark.daemon` if `spark.python.daemon.module` names it.
Workers are forks of it, so imports made here are made once for all of them. The imported modules
must not start threads that matter after a fork. The daemon must not write to standard output, where
it prints its port for Spark.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

TASK_WORKER = "pyspark.worker"
"""The module that runs tasks; Spark's other workers only plan."""

NEEDED = (
    "pyarrow",
    "pyspark.sql.datasource",
    "neve.bucket.sync_bucket",
    "neve.lake.spark.source.reader",
)
NEEDED_BY_TASKS = ("pyarrow.compute", "neve.records.arrow", "neve.records.kernel")


def preload(worker_module: str) -> None:
    """Import what a worker of this kind needs. An import that fails is left to the worker."""
    tasks = worker_module == TASK_WORKER
    if tasks:
        with contextlib.suppress(Exception):
            keep_memory()
    with contextlib.redirect_stdout(sys.stderr):
        for name in NEEDED + (NEEDED_BY_TASKS if tasks else ()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    # Frozen objects are skipped by the garbage collector, so their pages stay shared with forks.
    gc.collect()
    gc.freeze()


def keep_memory() -> None:
    """Let the C library allocate Arrow's buffers, and keep freed memory.

    A task allocates and frees columns of some MiB all the time. Arrow's own pool returns them to
    the system, and fresh pages took a tenth of a task's time, on some machines far more.
    """
    import pyarrow as pa

    from neve import runtime

    if runtime.keep_freed_memory():
        pa.set_memory_pool(pa.system_memory_pool())


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload(sys.argv[1] if len(sys.argv) > 1 else TASK_WORKER)
    manager()
