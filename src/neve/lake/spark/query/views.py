"""Temporary views over the relations of one query, and the query on them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neve import runtime
from neve.lake.spark.query.plan_check import PlanCheck
from neve.lake.spark.query.relations import table_frame, topic_frame
from neve.lake.sql.model import Prepared, RelationRead
from neve.lake.sql.names import quoted, sql_name
from neve.lake.sql.relation_catalog import RelationCatalog
from neve.lake.sql.statements import Kind, Splice, spliced
from neve.lake.sql.tables import TableQuery

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

    from neve.lake.scan.tasks import StoreRef

SETTINGS = {
    # Otherwise Spark would replace ${env:PATH} in the text.
    "spark.sql.variable.substitute": "false",
    # Otherwise a query could read any file that this process can.
    "spark.sql.runSQLOnFiles": "false",
}


def session_for(spark: SparkSession) -> SparkSession:
    """Return a new session on the same Spark, with its own views and settings."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    own = spark.newSession()
    # This logger would write every query error to standard error, as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    for name, value in {**SETTINGS, "spark.sql.session.timeZone": str(zone)}.items():
        own.conf.set(name, value)
    return own


class Views:
    """The views of one query. They are dropped as soon as Spark has analysed the query."""

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
        """The relation of each view."""

    def frame(self) -> DataFrame:
        """Analyse the query. If a pruned column turns out to be needed, retry with all columns."""
        from pyspark.errors import AnalysisException

        try:
            return self._frame(self._prepared.reads)
        except AnalysisException:
            if not any(read.pruned for read in self._prepared.reads):
                raise
        whole = [replace(read, columns=read.all_columns) for read in self._prepared.reads]
        return self._frame(tuple(whole))

    def table_query(self, read: RelationRead) -> TableQuery:
        """Return the query of a table. All references to it in one query use the same snapshot."""
        parts = read.relation.parts
        if parts not in self._tables:
            self._tables[parts] = self._catalog.table(read.relation)
        return TableQuery(self._tables[parts], read, self._prepared.constants, self._now_ms)

    def _frame(self, reads: tuple[RelationRead, ...]) -> DataFrame:
        splices: list[Splice] = list(self._prepared.edits)
        made = []
        try:
            for each in reads:
                view = f"neve_{runtime.token(8).hex()}"
                self._relation(each).createOrReplaceTempView(view)
                made.append(view)
                self.names[view] = sql_name(each.relation)
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

    def _relation(self, read: RelationRead) -> Any:
        if read.relation.kind == "topic":
            return topic_frame(self._spark, self._store, read)
        return table_frame(self._spark, self.table_query(read).plan())


def _replacements(read: RelationRead, view: str) -> list[Splice]:
    reference = read.reference
    found = [Splice(reference.start, reference.end, quoted(view))]
    if reference.alias_at is not None:
        alias = f" AS {quoted(reference.parts[-1])}"
        found.append(Splice(reference.alias_at, reference.alias_at, alias))
    return found
