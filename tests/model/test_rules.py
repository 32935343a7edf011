"""With all rules the models are visited whole without harm; without any one, harm follows.

The tables of docs/contributors/models.md are compared with what was found here.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from .catalogue import DROPPED, EXPLORATIONS, MODELS, SECOND_LINE, Dropped, Exploration
from .search import explore

PAGE = Path(__file__).parents[2] / "docs" / "contributors" / "models.md"


def _marked(exploration: Exploration) -> object:
    marks = [getattr(pytest.mark, exploration.mark)] if exploration.mark else []
    return pytest.param(exploration, id=exploration.name, marks=marks)


def _row(first_cell: str) -> list[str]:
    """The cells of the page's table row that begins with this cell."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] == first_cell:
            return cells
    raise AssertionError(f"{PAGE} has no table row for {first_cell!r}: add one")


@pytest.mark.parametrize("exploration", [_marked(each) for each in EXPLORATIONS])
def test_all_rules_together_keep_every_promise(exploration: Exploration) -> None:
    result = explore(exploration.model)
    assert result.violation is None, f"\n{result.violation}"
    assert result.exhausted
    assert f"{result.states:,}" in _row(exploration.name)


@pytest.mark.parametrize("dropped", DROPPED, ids=lambda dropped: dropped.name)
def test_without_one_rule_a_promise_breaks(dropped: Dropped) -> None:
    result = explore(dropped.model, harm=dropped.harm)
    print(f"without {dropped.name}\n{result.violation}")
    assert result.violation is not None
    assert result.violation.outcome == dropped.harm
    assert str(len(result.violation.steps)) in _row(dropped.name)


def test_every_rule_of_every_model_is_dropped_once() -> None:
    rules = {
        f"{kind}: {field.name}" for kind, model in MODELS.items() for field in fields(model().rules)
    }
    dropped = {each.name for each in DROPPED}
    assert rules - dropped == SECOND_LINE
    assert len(dropped) == len(DROPPED)
