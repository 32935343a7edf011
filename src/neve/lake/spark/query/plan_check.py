"""Refuses statements by their plans: what Spark has understood, not what the text looks like.

A text can be written in more ways than a check of texts thinks of. So Spark parses each statement,
and every node, expression and function of the parsed plan has to be in the lists of `allowed`; only
then is it analysed, and the plans of the analysis have to be in them as well. Functions that are
not listed are also taken out of the session. Walking a plan over the bridge to the JVM would
cost a round trip for each of its parts, so a small class in the JVM does it, compiled there by
the compiler that Spark brings along.
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
    """The check of one session, from which all functions that are not listed are gone."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        # The bridge remembers methods by their class's name: no two classes may share one.
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
        """Refuse a text by its parsed plan.

        Returns the names of relations in it that are neither `views` nor defined by it.
        """
        refused, *names = self._java.checkText(text, " ".join(views))
        if refused:
            raise _refusal(str(refused))
        return [tuple(str(part) for part in parts) for parts in names]

    def frame(self, frame: DataFrame) -> None:
        """Refuse a query by its analysed plan, before any of it has run."""
        java: Any = frame._jdf
        refused = self._java.checkPlan(java.queryExecution().analyzed())
        if refused:
            raise _refusal(str(refused))


def _refusal(what: str) -> RefusedError:
    shown = what.rpartition(".")[2] if what.startswith(("catalyst.", "execution.")) else what
    return RefusedError(
        f"{shown} is not allowed here: docs/users/sql.md lists what queries may use"
    )
