"""JVM options for tests, where a JVM lives for seconds and most of them are its start.

Fewer methods are compiled, garbage is collected by one thread, and Spark's classes are not verified
again: a session starts in half the CPU time. A driver maps the classes that tools/spark_archive.py
has archived.
"""

from __future__ import annotations

import os
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[2] / ".tools" / "spark.jsa"
SAME_AS_ARCHIVED = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions"
)
QUICK_JVM = f"{SAME_AS_ARCHIVED} -XX:-BytecodeVerificationRemote"


def _driver_options() -> str:
    if not (ARCHIVE.is_file() and ARCHIVE.stat().st_size):
        return QUICK_JVM
    # A JVM that cannot use the archive says so among a program's output, unless it may not.
    return f"{QUICK_JVM} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"


def start_jvms_quickly() -> None:
    """For drivers, a cluster's daemons and what launches both, in this process and below it."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _driver_options())
    for name in ("SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, QUICK_JVM)
