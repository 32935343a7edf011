"""How Spark's JVMs are started in tests: they live for seconds, and most of those are their start.

Less is compiled, one thread collects, and Spark's own classes are not verified once more: a session
starts with half the processor time.
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
