"""Spark's exceptions, told plainly."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException, SparkRuntimeException

from neve.lake.sql.errors import QueryCancelledError, QueryError, QueryFailedError
from neve.lake.sql.failures import translated


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
