"""A program that runs Spark steps one after the other in one process: a JVM starts slowly.

Each line of standard input is a step as JSON: the text of a program, or the arguments of `neve`.
The response to a step is a line with its exit code.
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
