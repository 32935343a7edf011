"""Steps that need Spark, one after the other in one process: a JVM takes long to start.

A line of standard input is a step as JSON: a program's text, or the words of a command `neve`. The
answer is a line with its exit code.
"""

from __future__ import annotations

import json
import sys
import traceback

from neve.cli import main


def run(step: list[str] | str) -> int:
    if isinstance(step, list):
        return main(step)
    try:
        exec(compile(step, "<page>", "exec"), {"__name__": "__main__"})
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()
    return 0


if __name__ == "__main__":
    for line in sys.stdin:
        code = run(json.loads(line))
        print(f"\nended with {code}", flush=True)
