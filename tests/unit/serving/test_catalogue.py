"""Every family is exposed once, with a help text, and described in docs/operators/metrics.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import metrics_table
from neve.serving.catalogue import CATALOGUE, Family

PAGE = Path(metrics_table.PAGE).read_text(encoding="utf-8")


def test_the_table_is_the_code_s() -> None:
    assert metrics_table.updated(PAGE) == PAGE, "run `make docs`"


def test_every_family_is_described_once_and_nothing_else_is() -> None:
    described = re.findall(r"^\| `((?:neve|kafka|process)_\w+)` \|", PAGE, flags=re.MULTILINE)
    assert Counter(described) == Counter(list(CATALOGUE))


@pytest.mark.parametrize("family", CATALOGUE.values(), ids=lambda family: family.name)
def test_a_family_is_named_as_prometheus_wants_it(family: Family) -> None:
    assert family.help
    assert re.fullmatch(r"[a-z_]+", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert len(set(family.labels)) == len(family.labels)
    assert "le" not in family.labels
