"""Spark's daemon for Python workers, with what every task needs loaded before it forks.

Spark starts this instead of `pyspark.daemon` where `spark.python.daemon.module` says so. A worker
is a fork of it, so an import that is made here is made once for all of them. What it imports must
start no thread that matters after a fork, and it must not write to standard output, which is how
Spark is told where the daemon listens.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

TASK_WORKER = "pyspark.worker"
"""What Spark runs tasks with; its other workers plan, and decode nothing."""

NEEDED = (
    "pyarrow",
    "pyspark.sql.datasource",
    "neve.bucket.facade",
    "neve.lake.spark.source.reader",
)
NEEDED_BY_TASKS = ("pyarrow.compute", "neve.records.arrow", "neve.records.kernel")


def preload(worker_module: str) -> None:
    """Import what a worker of this kind will need; what cannot be had is left to the worker."""
    tasks = worker_module == TASK_WORKER
    if tasks:
        with contextlib.suppress(Exception):
            keep_memory()
    with contextlib.redirect_stdout(sys.stderr):
        for name in NEEDED + (NEEDED_BY_TASKS if tasks else ()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    # What lives now lives for good: never looked at by a collection, it stays shared with forks.
    gc.collect()
    gc.freeze()


def keep_memory() -> None:
    """Have Arrow's buffers handed out by the C library, which keeps what was freed.

    A task makes and drops columns of some MiB all the time. Arrow's own pool gives them back to
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
