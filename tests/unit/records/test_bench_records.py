"""The benchmark runs, compares like with like, and says what it measured."""

from __future__ import annotations

import json

import pytest

from neve.bench import records
from neve.errors import InvalidError


def test_a_small_run_has_all_its_figures() -> None:
    result = json.loads(json.dumps(records.run(2000, (100, 50), 1)))
    assert [row["value_bytes"] for row in result["results"]] == [100, 50]
    assert [row["target"] for row in result["results"]] == [8.0, None]
    for row in result["results"]:
        assert row["records"] >= 2000
        assert row["ratio"] > 0
        assert set(row["records_per_second"]) == {"kernel", "aiokafka", "aiokafka_unchecked"}


def test_sizes_are_checked() -> None:
    with pytest.raises(InvalidError):
        records.run(0, (100,), 1)
