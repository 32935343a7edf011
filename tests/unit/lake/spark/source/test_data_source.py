"""The schema of the data source: the column `headers` only where the option asks for it."""

from __future__ import annotations

import pytest

from neve.errors import InvalidError
from neve.lake.spark.source.columns import TYPES
from neve.lake.spark.source.data_source import NeveDataSource

WITHOUT_HEADERS = [name for name in TYPES if name != "headers"]


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, WITHOUT_HEADERS),
        ({"includeHeaders": "false"}, WITHOUT_HEADERS),
        ({"includeHeaders": " True "}, list(TYPES)),
        ({"INCLUDEHEADERS": "true"}, list(TYPES)),
    ],
)
def test_the_schema_has_headers_only_with_the_option(
    options: dict[str, str], columns: list[str]
) -> None:
    assert NeveDataSource(options).schema().names == columns


def test_a_value_that_is_neither_true_nor_false_is_rejected_before_the_schema_is_used() -> None:
    with pytest.raises(InvalidError, match="includeHeaders = 'yes' must be true or false"):
        NeveDataSource({"includeHeaders": "yes"}).schema()
