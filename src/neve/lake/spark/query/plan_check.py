"""Rejects statements by the plans that Spark makes of them, not by their text.

A check of the text could be evaded. So Spark parses each statement, and every node, expression and
function of the parsed plan must be in the lists of `allowed`. Then Spark analyses it, and every
node of the analysed plan must be in them too. Unlisted functions are also removed from the session.
Walking a plan from Python would cost a round trip to the JVM per node, so a small Java class does
it, compiled in the JVM by the compiler that Spark includes.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from neve import runtime
from neve.lake.spark.query import allowed
from neve.lake.sql.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PlanCheck:
    """The check of one session. Removes all functions that are not listed from it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        # py4j caches methods by class name, so every class needs a unique name.
        name = f"PlanCheck{runtime.token(8).hex()}"
        source = resources.files(__package__).joinpath("PlanCheck.java")
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source.read_text(encoding="utf-8").replace("PlanCheck", name))
        self._java: Any = compiler.getClassLoader().loadClass(f"neve.{name}").newInstance()
        lists = (allowed.PARSED, allowed.ANALYSED, allowed.FUNCTIONS, allowed.TABLE_FUNCTIONS)
        self._java.prepare(
            spark._jsparkSession, *(" ".join(sorted(names)) for names in (*lists, allowed.HINTS))
        )

    def text(self, text: str, views: Iterable[str]) -> list[tuple[str, ...]]:
        """Check the parsed plan of a text. Raises RefusedError.

        Returns the names of relations that are neither in `views` nor defined by the text.
        """
        refused, *names = self._java.checkText(text, " ".join(views))
        if refused:
            raise _refusal(str(refused))
        return [tuple(str(part) for part in parts) for parts in names]

    def frame(self, frame: DataFrame) -> None:
        """Check the analysed plan of a query before it runs. Raises RefusedError."""
        java: Any = frame._jdf
        refused = self._java.checkPlan(java.queryExecution().analyzed())
        if refused:
            raise _refusal(str(refused))


def _refusal(what: str) -> RefusedError:
    shown = what.rpartition(".")[2] if what.startswith(("catalyst.", "execution.")) else what
    return RefusedError(
        f"{shown} is not allowed here: docs/users/sql.md lists what queries may use"
    )
