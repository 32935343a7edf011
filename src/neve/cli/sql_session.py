"""Starts what `neve sql` runs on: Spark, quietly, and the engine over a bucket and its tables."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neve.cli.output import UsageError
from neve.errors import InvalidError, NeveError
from neve.settings import Settings, declared

if TYPE_CHECKING:
    from neve.lake.sql.engine import Engine

PACKAGES = ("pyspark", "pyiceberg", "sqlglot")
_TAIL_CHARACTERS = 500


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """`name=value` flags as a mapping."""
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{flag} {each}: write name=value")
        found[name.strip()] = value.strip()
    return found


def changed_settings(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Settings that are not their default, as workers are told them."""
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
) -> Iterator[Engine]:
    """An engine with a Spark of its own, both gone at the end."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InvalidError(f"SQL needs {', '.join(missing)}: pip install 'neve[lake]'")
    from neve.lake.source.tasks import StoreRef
    from neve.lake.sql.engine import Engine
    from neve.lake.sql.tables import open_catalog

    store = StoreRef(url, layout, changed_settings(settings))
    # Before Spark starts, which takes a while: a wrong URL or catalog is told at once.
    with store.open() as bucket:
        bucket.topics()
    tables = open_catalog(catalog, url, settings.store)
    with _spark(master, conf) as spark, Engine(spark, store, tables) as engine:
        yield engine


@contextlib.contextmanager
def _spark(master: str, conf: Mapping[str, str]) -> Iterator[Any]:
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as log:
        try:
            with _errors_to(log.fileno()), _waiting("starting Spark"):
                from neve.lake import session

                spark = session("neve-sql", master=master, **conf)
        except NeveError:
            raise
        except Exception as error:
            log.seek(0)
            said = log.read()[-_TAIL_CHARACTERS:]
            raise InvalidError(f"Spark did not start ({error}): {said}") from error
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def _errors_to(descriptor: int) -> Iterator[None]:
    """What the JVM and its workers write while they live: not among the user's rows."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Say on a terminal what takes so long."""
    if not sys.stdout.isatty():
        yield
        return
    from rich.console import Console

    with Console().status(f"{what} …"):
        yield
