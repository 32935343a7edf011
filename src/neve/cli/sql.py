"""`neve sql`: Spark SQL over a bucket's topics and its Iceberg tables, without a broker."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from neve import runtime
from neve.cli import sql_prompt
from neve.cli.output import DEFAULT_FLAGS, SettingsFlags, UsageError, naming
from neve.cli.sql_output import Format, print_result
from neve.cli.sql_serve import NO_SERVER, ServeFlags, run_server
from neve.cli.sql_session import DEFAULT_RESULTS, ResultFlags, open_engine, pairs
from neve.cli.sql_stopping import run_stoppable

if TYPE_CHECKING:
    from neve.lake.spark.query.engine import Engine


def sql(
    query: Annotated[
        str | None, Parameter(help="One statement. Default: a prompt, or the statements of a pipe.")
    ] = None,
    /,
    *,
    store: Annotated[
        str | None, Parameter(help="The bucket: a URL or a folder. Default: ./neve-data.")
    ] = None,
    layout: Annotated[
        Literal["neve", "kafscale"], Parameter(help="The system that wrote the files.")
    ] = "neve",
    json: Annotated[bool, Parameter(negative="", help="Print one JSON object per row.")] = False,
    csv: Annotated[bool, Parameter(negative="", help="Print CSV, with a header.")] = False,
    catalog: Annotated[
        list[str] | None,
        Parameter(negative="", help="A property of the Iceberg catalog as name=value: type, uri, "
                  "warehouse, … Default: the catalog next to the bucket. Repeatable."),
    ] = None,
    master: Annotated[str, Parameter(help="The Spark master URL.")] = "local[*]",
    conf: Annotated[
        list[str] | None,
        Parameter(negative="", help="A Spark setting as name=value. Repeatable."),
    ] = None,
    results: ResultFlags = DEFAULT_RESULTS,
    server: ServeFlags = NO_SERVER,
    settings: SettingsFlags = DEFAULT_FLAGS,
) -> int:  # fmt: skip
    """Query topics and Iceberg tables with Spark SQL.

    A topic is a table with the columns key, value, topic, partition, offset, timestamp,
    timestampType and headers; value:customer.id is a field of a JSON value. An Iceberg table is
    namespace.table. Only queries are allowed.
    """
    if json and csv:
        raise UsageError("--json and --csv cannot be combined: choose one")
    options = server.options()
    if options is not None and (query is not None or json or csv):
        raise UsageError("--serve cannot be combined with a query, --json or --csv")
    form: Format = "json" if json else "csv" if csv else "table"
    named = [f"broker.store={store}"] if store is not None else []
    loaded = dataclasses.replace(settings, assignments=[*settings.assignments, *named]).load()
    url = loaded.broker.store
    with (
        naming(url),
        open_engine(
            url,
            layout,
            loaded,
            catalog=pairs("--catalog", catalog or []),
            master=master,
            conf=pairs("--conf", conf or []),
            results=results,
        ) as engine,
    ):
        if options is not None:
            return run_server(engine, options, loaded)
        return _run(query, _runner(engine, form))


def _run(query: str | None, run: Callable[[str], None]) -> int:
    if query is not None:
        run(query)
        return 0
    if sql_prompt.standard_input_is_terminal():
        return sql_prompt.run_prompt(run)
    return sql_prompt.run_script(sys.stdin.read(), run)


def _runner(engine: Engine, form: Format) -> Callable[[str], None]:
    def run(statement: str) -> None:
        tag = f"neve-sql-{runtime.token(8).hex()}"
        run_stoppable(
            lambda: print_result(engine.execute(statement, tag=tag), form),
            lambda: engine.cancel(tag),
        )

    return run
