"""Spark's exceptions, told plainly."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, SparkRuntimeException

from neve.lake.spark.query.spark_errors import translate_errors, translated
from neve.lake.sql.errors import (
    EngineLostError,
    QueryCancelledError,
    QueryError,
    QueryFailedError,
)


def test_a_column_or_a_value_called_cancelled_is_no_cancelled_query() -> None:
    column = AnalysisException(
        "[UNRESOLVED_COLUMN] A column with name `cancelled` cannot be resolved. SQLSTATE: 42703"
    )
    told = translated(column, {})
    assert isinstance(told, QueryError)
    assert "cancelled" in str(told)
    assert told.sqlstate == "42703"
    value = SparkRuntimeException("[CAST_INVALID_INPUT] The value 'cancelled' cannot be cast.")
    assert isinstance(translated(value, {}), QueryFailedError)


@pytest.mark.parametrize(
    "text",
    [
        "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job tags [x] SQLSTATE: XXKDA",
        "org.apache.spark.SparkException: Job 12 cancelled because of a tag",
    ],
)
def test_a_cancelled_job_is_told_as_that(text: str) -> None:
    assert isinstance(translated(PySparkException(text), {}), QueryCancelledError)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Task 1 failed: java.lang.OutOfMemoryError: Java heap space", "53200"),
        ("org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.", "53200"),
        ("Job 7 cancelled because SparkContext was shut down", "57P02"),
        ("Traceback\nneve.lake.sql.errors.ResultTooLargeError: a row of the result", "54000"),
    ],
)
def test_what_ran_out_has_a_code_of_its_own(text: str, code: str) -> None:
    told = translated(PySparkException(text), {})
    assert isinstance(told, QueryFailedError)
    assert told.sqlstate == code


@pytest.mark.parametrize(
    "lost", [ConnectionRefusedError("refused"), EOFError(), Py4JNetworkError()]
)
def test_a_bridge_that_is_gone_means_that_spark_has_ended(lost: Exception) -> None:
    with pytest.raises(EngineLostError, match="Spark has stopped"), translate_errors({}):
        raise lost
