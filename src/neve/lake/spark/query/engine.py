"""The query engine of `neve sql` and the PostgreSQL server.

Each reference to a relation in a query is replaced by a temporary view over the columns and rows
that it needs, and the query runs on those views. Only queries are allowed. An engine is
thread-safe; a query is cancelled by its tag.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from neve import runtime
from neve.lake.spark.query.arrow_stream import ArrowStream
from neve.lake.spark.query.arrow_types import with_arrow_types
from neve.lake.spark.query.plan_check import PlanCheck
from neve.lake.spark.query.running_queries import RunningQueries, RunningQuery
from neve.lake.spark.query.spark_errors import translate_errors
from neve.lake.spark.query.spool import DEFAULT_LIMITS, ResultLimits
from neve.lake.spark.query.views import Views, session_for
from neve.lake.sql.analysis import Analysis, RelationReference, analyse
from neve.lake.sql.errors import QueryError
from neve.lake.sql.json_paths import as_written, with_json_paths
from neve.lake.sql.literals import Constants
from neve.lake.sql.model import (
    Column,
    Explanation,
    Prepared,
    Relation,
    RelationPlan,
    RelationRead,
    Result,
    answered,
)
from neve.lake.sql.names import RelationName, sql_name
from neve.lake.sql.ranges import ranges_of
from neve.lake.sql.relation_catalog import RelationCatalog
from neve.lake.sql.statements import (
    Kind,
    blank_comments,
    explained_query,
    kind_of,
    tokens_of,
    with_named_parameters,
    with_offset_as_column,
)
from neve.lake.sql.topics import CHEAPEST, topic_plan

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import DataFrame, SparkSession

    from neve.lake.scan.tasks import StoreRef

_ENDING_SECONDS = 5.0


class Engine:
    """Runs queries over one bucket and an optional catalog. A context manager; or `close` it."""

    def __init__(
        self,
        spark: SparkSession,
        store: StoreRef,
        catalog: Catalog | None = None,
        limits: ResultLimits = DEFAULT_LIMITS,
    ) -> None:
        self._spark = session_for(spark)
        self._limits = limits
        self._check = PlanCheck(self._spark)
        self._store = store
        self._bucket = store.open()
        self._catalog = RelationCatalog(self._bucket, catalog)
        self._running = RunningQueries()
        self._spool: Path | None = None
        if spark.sparkContext.master.startswith("local"):  # tasks share the disk of this process
            self._spool = Path(tempfile.mkdtemp(prefix="neve-sql-", dir=_local_folder(spark)))

    # --- queries

    def prepare(self, sql: str, parameters: Sequence[object] = ()) -> Prepared:
        """Analyse a query: its relations, columns and ranges. Reads no records."""
        sql = blank_comments(sql)
        tokens = tokens_of(sql)
        kind = kind_of(tokens)
        text, mode = sql[tokens[0].start : tokens[-1].end + 1], "simple"
        if kind == Kind.EXPLAIN:
            text, mode = explained_query(sql)
        elif kind != Kind.QUERY:
            return Prepared(kind, text)
        written = text
        text = with_json_paths(written)
        has_paths = text != written
        text = with_offset_as_column(text)
        text, values = with_named_parameters(text, tokens_of(text), parameters)
        constants = Constants(self._zone(), values)
        analysis = analyse(text, tokens_of(text), constants)
        reads = self._relation_reads(analysis, constants)
        return Prepared(kind, text, values, reads, analysis.edits, constants, mode, has_paths)

    def execute(self, sql: str, parameters: Sequence[object] = (), *, tag: str) -> Result:
        """Begin a query. Returns its schema at once; its rows are computed when they are read.

        Raises QueryError, QueryCancelledError and QueryFailedError.
        """
        if not tag or "," in tag:
            raise QueryError("a tag must not be empty or contain a comma")
        query = self._running.begin(tag)
        prepared = self.prepare(sql, parameters)
        query.check()
        answer = self._answer(prepared)
        return answer if answer is not None else self._result(prepared, query)

    def cancel(self, tag: str) -> None:
        """Cancel the queries with a tag. Reading their rows raises QueryCancelledError."""
        if self._running.cancel(tag):
            with translate_errors({}):
                self._spark.sparkContext.cancelJobsWithTag(tag)

    def explain(self, sql: str, parameters: Sequence[object] = ()) -> Explanation:
        """Return what a query would read, and Spark's plan. The text may begin with EXPLAIN."""
        prepared = self.prepare(sql, parameters)
        if prepared.kind not in (Kind.QUERY, Kind.EXPLAIN):
            raise QueryError("only queries can be explained: write EXPLAIN SELECT …")
        return self._explained(prepared)

    def failure(self) -> str:
        """Return why the engine cannot run queries any more; empty while Spark runs."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        context: Any = self._spark.sparkContext
        try:
            return "Spark's context was stopped" if context._jsc.sc().isStopped() else ""
        except (OSError, Py4JError) as error:
            process = getattr(context._gateway, "proc", None)
            if process is None:
                return f"Spark's JVM does not answer: {error}"
        with contextlib.suppress(subprocess.TimeoutExpired):  # its sockets close before it exits
            return f"Spark's JVM has exited with code {process.wait(_ENDING_SECONDS)}"
        return "Spark's JVM does not answer any more"

    # --- relations

    def relations(self) -> list[Relation]:
        """Return all topics and tables, with their columns."""
        return self._catalog.relations()

    def describe(self, name: str) -> list[Column]:
        """Return the columns of a relation, with their names in a query."""
        return list(self._catalog.columns(self._catalog.by_text(name)))

    def close(self) -> None:
        self._bucket.close()
        if self._spool is not None:
            shutil.rmtree(self._spool, ignore_errors=True)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- implementation

    def _zone(self) -> ZoneInfo | None:
        with translate_errors({}):
            zone = str(self._spark.conf.get("spark.sql.session.timeZone"))
        try:
            return ZoneInfo(zone)
        except (KeyError, ValueError):
            return None  # such as GMT+2: only Spark can then interpret texts as timestamps

    def _relation_reads(self, analysis: Analysis, constants: Constants) -> tuple[RelationRead, ...]:
        found = self._catalog.find([reference.parts for reference in analysis.references])
        reads = []
        for reference in analysis.references:
            relation = found.get(reference.parts)
            if relation is not None:
                reads.append(self._relation_read(reference, relation, constants))
            elif analysis.understood:
                raise self._catalog.missing(reference.parts)
        return tuple(reads)

    def _relation_read(
        self, reference: RelationReference, relation: RelationName, constants: Constants
    ) -> RelationRead:
        columns = self._catalog.columns(relation)
        names = tuple(column.name for column in columns)
        wanted = tuple(name for name in names if reference.needs(name))
        if relation.kind == "table":
            return RelationRead(relation, reference, wanted or (_narrowest(columns),), names)
        ranges = ranges_of(reference.predicate, constants, runtime.now_ms())
        return RelationRead(relation, reference, wanted or (CHEAPEST,), names, ranges)

    def _answer(self, prepared: Prepared) -> Result | None:
        """Return the result of a statement that does not need Spark; None for a query."""
        if prepared.kind == Kind.EXPLAIN:
            return answered(pa.table({"plan": self._explained(prepared).lines()}))
        if prepared.kind == Kind.SHOW_TABLES:
            rows = self._catalog.names().all
            shown = [each for each in rows if not each.name.startswith("__")]
            names, kinds = [sql_name(each) for each in shown], [each.kind for each in shown]
            return answered(
                pa.table(
                    [pa.array(names, pa.string()), pa.array(kinds, pa.string())],
                    names=["name", "kind"],
                )
            )
        return self._described(prepared) if prepared.kind == Kind.DESCRIBE else None

    def _described(self, prepared: Prepared) -> Result:
        words = tokens_of(prepared.text)[1:]
        while words and words[0].text.upper() in ("TABLE", "EXTENDED", "FORMATTED") and words[1:]:
            words = words[1:]
        if not words:
            raise QueryError("DESCRIBE needs a name: SHOW TABLES lists them")
        columns = self.describe(prepared.text[words[0].start :])
        kinds = [_spark_name(column.type) for column in columns]
        nullable = [column.nullable for column in columns]
        names = [column.name for column in columns]
        return answered(pa.table({"col_name": names, "data_type": kinds, "nullable": nullable}))

    def _result(self, prepared: Prepared, query: RunningQuery) -> Result:
        views = self._views(prepared)
        with translate_errors(views.names, query.is_cancelled):
            frame, schema = with_arrow_types(views.frame())
        if prepared.has_paths:
            schema = pa.schema([field.with_name(as_written(field.name)) for field in schema])
        return Result(schema, lambda: self._streamed(frame, schema, views, query))

    def _streamed(
        self, frame: DataFrame, schema: pa.Schema, views: Views, query: RunningQuery
    ) -> Iterator[pa.RecordBatch]:
        with translate_errors(views.names, query.is_cancelled):
            stream = ArrowStream(frame, schema, query.tag, self._spool, self._limits)
            yield from stream.batches(query.check)

    def _views(self, prepared: Prepared) -> Views:
        return Views(self._spark, self._check, self._store, self._catalog, prepared)

    def _explained(self, prepared: Prepared) -> Explanation:
        views = self._views(prepared)
        with translate_errors(views.names):
            plan = _spark_plan(views.frame(), prepared.mode)
        for view, name in views.names.items():
            plan = plan.replace(view, name)
        return Explanation(tuple(self._relation_plan(views, read) for read in prepared.reads), plan)

    def _relation_plan(self, views: Views, read: RelationRead) -> RelationPlan:
        if read.relation.kind == "topic":
            return topic_plan(self._bucket, read)
        return views.table_query(read).explained()


def _local_folder(spark: SparkSession) -> str | None:
    """Return the first folder in `spark.local.dir` if it exists, else None."""
    first = (spark.sparkContext.getConf().get("spark.local.dir") or "").split(",")[0].strip()
    return first if first and Path(first).is_dir() else None


def _narrowest(columns: Sequence[Column]) -> str:
    """Return the cheapest column, for queries that only count rows."""
    numbers = [c.name for c in columns if pa.types.is_integer(c.type) or pa.types.is_date(c.type)]
    return (numbers or [column.name for column in columns])[0]


def _spark_plan(frame: DataFrame, mode: str) -> str:
    java: Any = frame._jdf
    context: Any = frame.sparkSession.sparkContext
    return str(context._jvm.PythonSQLUtils.explainString(java.queryExecution(), mode))


def _spark_name(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
