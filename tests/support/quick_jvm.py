"""JVM options for tests, where a JVM lives for seconds and most of them are its start.

Fewer methods are compiled, garbage is collected by one thread, and Spark's classes are not verified
again: a session starts in half the CPU time.
"""

from __future__ import annotations

import os

QUICK_JVM = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def start_jvms_quickly() -> None:
    """For drivers, a cluster's daemons and what launches both, in this process and below it."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, QUICK_JVM)
