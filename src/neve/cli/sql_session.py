"""Start of Spark and of the SQL engine for `neve sql`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from neve.cli.output import UsageError
from neve.cli.spark import quiet_spark
from neve.settings import Settings, declared

if TYPE_CHECKING:
    from neve.lake.spark.query.engine import Engine

SPARK_SETTINGS = {
    # A task that runs out of memory must fail only its query, not end the JVM.
    "spark.executor.killOnFatalError.depth": "0",
}


@Parameter(name="*")
@dataclass(frozen=True)
class ResultFlags:
    """The flags that limit results."""

    row_bytes_max: Annotated[
        int, Parameter(help="Maximum size of a row of a result, in bytes.")
    ] = 64 * 1024**2
    partition_bytes_max: Annotated[
        int, Parameter(help="Maximum size of a partition of a result, in bytes. May use disk.")
    ] = 8 * 1024**3


DEFAULT_RESULTS = ResultFlags()


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """Parse `name=value` flags into a mapping."""
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{flag} {each}: must be name=value")
        found[name.strip()] = value.strip()
    return found


def changed_settings(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the settings that differ from their defaults, for Spark's workers."""
    found = []
    for about in declared().values():
        value = getattr(getattr(settings, about.group), about.field)
        if value != about.default and about.group != "broker":
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append((about.name, text))
    return tuple(found)


@contextlib.contextmanager
def open_engine(
    url: str,
    layout: str,
    settings: Settings,
    *,
    catalog: Mapping[str, str],
    master: str,
    conf: Mapping[str, str],
    results: ResultFlags,
) -> Iterator[Engine]:
    """Start an engine with its own Spark session and stop both at the end."""
    from neve.lake.scan.tasks import StoreRef
    from neve.lake.spark.query.engine import Engine
    from neve.lake.spark.query.spool import ResultLimits
    from neve.lake.sql.tables import open_catalog

    store = StoreRef(url, layout, changed_settings(settings))
    # Before Spark starts, which takes a while: report a wrong URL or catalog immediately.
    with store.open() as bucket:
        bucket.topics()
    tables = open_catalog(catalog, url, settings.store)
    limits = ResultLimits(
        row_bytes_max=results.row_bytes_max, partition_bytes_max=results.partition_bytes_max
    )
    with (
        quiet_spark("neve-sql", master, {**SPARK_SETTINGS, **conf}) as spark,
        Engine(spark, store, tables, limits) as engine,
    ):
        yield engine
