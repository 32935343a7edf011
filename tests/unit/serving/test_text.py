"""The text format, read back with prometheus-client's parser."""

from __future__ import annotations

import math

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from neve.serving import text
from neve.serving.catalogue import CATALOGUE, Family


@pytest.fixture(autouse=True)
def _families(monkeypatch: pytest.MonkeyPatch) -> None:
    for family in (
        Family("sample_total", "counter", 'a "help" with \\ and\na line', ("a", "b")),
        Family("sample_plain", "gauge", "none"),
        Family("sample_seconds", "histogram", "times", ("api",)),
    ):
        monkeypatch.setitem(CATALOGUE, family.name, family)


def parsed(exposed: str) -> Metric:
    (family,) = text_string_to_metric_families(exposed)
    return family


@pytest.mark.parametrize(
    "value", ["plain", 'quo"te', "back\\slash", "line\nbreak", "\\n", "café", ""]
)
def test_any_label_comes_back(value: str) -> None:
    family = parsed(text.several("sample_total", [((value, "b"), 3)]))
    assert family.type == "counter"
    assert [sample.labels for sample in family.samples] == [{"a": value, "b": "b"}]


def test_the_help_comes_back() -> None:
    assert parsed(text.header("sample_total")).documentation == 'a "help" with \\ and\na line'


@pytest.mark.parametrize("value", [0, 2**60, -1, 0.1, 1e-9, 1e300, math.inf, -math.inf])
def test_any_number_comes_back(value: float) -> None:
    (sample,) = parsed(text.one("sample_plain", value)).samples
    assert sample.value == value


def test_no_number_is_told_as_such() -> None:
    (sample,) = parsed(text.one("sample_plain", math.nan)).samples
    assert math.isnan(sample.value)


def test_a_family_without_samples_is_still_named() -> None:
    family = parsed(text.several("sample_total", []))
    assert (family.name, family.samples) == ("sample", [])


def test_a_histogram_has_its_buckets_sum_and_count() -> None:
    buckets = [(0.1, 1), (0.5, 4), (math.inf, 9)]
    family = parsed(text.histogram("sample_seconds", [(("Fetch",), buckets, 12.5)]))
    assert family.type == "histogram"
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in family.samples
        if sample.labels["api"] == "Fetch"
    }
    assert found == {
        ("sample_seconds_bucket", "0.1"): 1,
        ("sample_seconds_bucket", "0.5"): 4,
        ("sample_seconds_bucket", "+Inf"): 9,
        ("sample_seconds_sum", None): 12.5,
        ("sample_seconds_count", None): 9,
    }


def test_labels_that_do_not_match_the_family_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="argument"):
        text.several("sample_total", [(("only one",), 1)])
