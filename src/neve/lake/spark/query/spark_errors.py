"""Translates Spark's exceptions to Neve's errors, without Spark's plans and stack traces."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

from neve.errors import NeveError
from neve.lake.sql.errors import (
    EngineLostError,
    OutOfMemoryError,
    QueryCancelledError,
    QueryError,
    QueryFailedError,
    ResultTooLargeError,
)

_NEVE_LINE = re.compile(r"^(?:\s*)(neve\.[\w.]+(?:Error)): (.*)$", re.MULTILINE)
_PYTHON_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception)): (.*)$", re.MULTILINE)
_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|\bJob \d+ cancelled\b")
"""Spark's own phrases: a single word could be a column or a value of the query."""
_STOPPED = re.compile(r"SparkContext was shut down|Cannot call methods on a stopped SparkContext")
_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|OutOfMemoryException|OutOfDirectMemory")
_SQLSTATE = re.compile(r"\s*SQLSTATE: (\w{5})")
_LENGTH_MAX = 600


@contextlib.contextmanager
def translate_errors(
    names: Mapping[str, str], cancelled: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Raise Neve's errors for Spark's exceptions in the block.

    `names` maps views to the relations that they replace.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except NeveError:
        raise
    except Py4JNetworkError as error:
        raise EngineLostError(f"Spark has stopped: {error}") from error
    except (PySparkException, Py4JError) as error:
        if cancelled():
            raise QueryCancelledError("the query was cancelled") from error
        raise translated(error, names) from error
    except (ConnectionError, EOFError) as error:
        raise EngineLostError(f"Spark has stopped: {error}") from error
    except OSError as error:
        raise QueryFailedError(f"the result cannot be kept on disk: {error}") from error


def translated(error: Exception, names: Mapping[str, str]) -> NeveError:
    """Return the error for an exception of Spark."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException

    text = _named(_message_of(error), names)
    if (found := _inner(text)) is not None:
        return found
    if _STOPPED.search(text):
        return EngineLostError("Spark has stopped: its context was stopped")
    if _OUT_OF_MEMORY.search(text):
        return OutOfMemoryError(
            "the query needs more memory than Spark has: select or sort less, "
            "or start with more (--conf spark.driver.memory)"
        )
    wrong = isinstance(error, ParseException | AnalysisException | IllegalArgumentException)
    if not wrong and _CANCELLED.search(text):
        return QueryCancelledError("the query was cancelled")
    failure: QueryError | QueryFailedError = (QueryError if wrong else QueryFailedError)(
        _first_paragraph(text)
    )
    if (code := _SQLSTATE.search(text)) is not None:
        failure.sqlstate = code[1]
    return failure


def _message_of(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.toString()) + "\n" + str(error) if java is not None else str(error)


def _inner(text: str) -> QueryFailedError | None:
    """Return the error of a Python worker, which Spark wraps into its own stack trace."""
    found = _NEVE_LINE.findall(text)
    if found:
        name, message = found[-1]
        too_large = name.endswith(f".{ResultTooLargeError.__name__}")
        return (ResultTooLargeError if too_large else QueryFailedError)(message)
    if "Traceback (most recent call last)" not in text:
        return None
    lines = _PYTHON_LINE.findall(text)
    return QueryFailedError(f"{lines[-1][0]}: {lines[-1][1]}") if lines else None


def _first_paragraph(text: str) -> str:
    text = re.sub(r"^(?:[\w.$]+(?:Exception|Error): )+", "", text)
    text = re.split(r"\n\s*(?:== SQL|JVM stacktrace|\tat |'?\w+ \[|\+- )|;\n", text)[0]
    text = _SQLSTATE.sub("", text)
    text = re.sub(r"; line \d+ pos \d+", "", text)
    text = re.sub(r"\(line \d+, pos \d+\)", "", text)
    text = " ".join(text.split())
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 1] + "…"


def _named(text: str, names: Mapping[str, str]) -> str:
    for view, name in names.items():
        text = text.replace(f"`{view}`", name).replace(view, name)
    return text
