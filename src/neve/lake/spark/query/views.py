"""Temporary views that stand for the relations of one query, and the query over them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neve import runtime
from neve.lake.spark.query.plan_check import PlanCheck
from neve.lake.spark.query.relations import table_frame, topic_frame
from neve.lake.sql.model import Needed, Prepared
from neve.lake.sql.names import quoted, sql_name
from neve.lake.sql.relation_catalog import RelationCatalog
from neve.lake.sql.statements import Kind, Splice, spliced
from neve.lake.sql.tables import TableQuery

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from neve.lake.scan.tasks import StoreRef

SETTINGS = {
    # Otherwise Spark would run another text than the one it was given: ${env:PATH} replaced.
    "spark.sql.variable.substitute": "false",
    # Otherwise a query could read any file that this process can.
    "spark.sql.runSQLOnFiles": "false",
}


def session_for(spark: SparkSession) -> SparkSession:
    """A session of the engine's own on the same Spark: its views and settings disturb nobody."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    own = spark.newSession()
    # It would write every mistake in a query to standard error, as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    for name, value in {**SETTINGS, "spark.sql.session.timeZone": str(zone)}.items():
        own.conf.set(name, value)
    return own


class Views:
    """The views of one query. They are dropped as soon as Spark has looked the query up."""

    def __init__(
        self,
        spark: SparkSession,
        check: PlanCheck,
        store: StoreRef,
        catalog: RelationCatalog,
        prepared: Prepared,
    ) -> None:
        self._spark = spark
        self._check = check
        self._store = store
        self._catalog = catalog
        self._prepared = prepared
        self._tables: dict[tuple[str, ...], Table] = {}
        self._now_ms = runtime.now_ms()
        self.names: dict[str, str] = {}
        """What each view stands for."""

    def frame(self) -> DataFrame:
        """The query, analysed. Where a column turns out to be missing, all of them are given."""
        from pyspark.errors import AnalysisException

        try:
            return self._frame(self._prepared.needed)
        except AnalysisException:
            if not any(needed.pruned for needed in self._prepared.needed):
                raise
        whole = [replace(needed, columns=needed.all_columns) for needed in self._prepared.needed]
        return self._frame(tuple(whole))

    def table_query(self, needed: Needed) -> TableQuery:
        """A table; all places of a query see one snapshot of it."""
        parts = needed.named.parts
        if parts not in self._tables:
            self._tables[parts] = self._catalog.table(needed.named)
        return TableQuery(self._tables[parts], needed, self._prepared.constants, self._now_ms)

    def _frame(self, needed: tuple[Needed, ...]) -> DataFrame:
        splices: list[Splice] = list(self._prepared.edits)
        made = []
        try:
            for each in needed:
                view = f"neve_{runtime.token(8).hex()}"
                self._relation(each).createOrReplaceTempView(view)
                made.append(view)
                self.names[view] = sql_name(each.named)
                splices += _replacements(each, view)
            text = spliced(self._prepared.text, splices)
            for name in self._check.text(text, made):
                raise self._catalog.missing(name)
            frame = self._spark.sql(text, args=dict(self._prepared.parameters))
            if self._prepared.kind != Kind.SHOW:
                self._check.frame(frame)
            return frame
        finally:
            for view in made:
                self._spark.catalog.dropTempView(view)

    def _relation(self, needed: Needed) -> Any:
        if needed.named.kind == "topic":
            return topic_frame(self._spark, self._store, needed)
        return table_frame(self._spark, self.table_query(needed).plan())


def _replacements(needed: Needed, view: str) -> list[Splice]:
    place = needed.place
    found = [Splice(place.start, place.end, quoted(view))]
    if place.alias_at is not None:
        alias = f" AS {quoted(place.parts[-1])}"
        found.append(Splice(place.alias_at, place.alias_at, alias))
    return found
