"""Start of Spark for a command, without its log lines."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from neve.errors import InvalidError, NeveError

_TAIL_CHARACTERS = 500


@contextlib.contextmanager
def quiet_spark(name: str, master: str, conf: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Run a Spark session during a `with`. If the start fails, the error has the JVM output."""
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as log:
        try:
            with _errors_to(log.fileno()), _waiting("starting Spark"):
                from neve.lake.spark.session import session, stop_session

                spark = session(name, master=master, **(conf or {}))
        except (NeveError, ModuleNotFoundError):
            raise
        except Exception as error:
            log.seek(0)
            said = log.read()[-_TAIL_CHARACTERS:]
            raise InvalidError(f"Spark did not start ({error}): {said}") from error
        try:
            yield spark
        finally:
            stop_session(spark)


@contextlib.contextmanager
def _errors_to(descriptor: int) -> Iterator[None]:
    """Redirect the output of the JVM and its workers, to keep it out of the results."""
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
    """Show on a terminal what the command waits for."""
    if not sys.stdout.isatty():
        yield
        return
    from rich.console import Console

    with Console().status(f"{what} …"):
        yield
