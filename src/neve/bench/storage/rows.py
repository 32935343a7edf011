"""What a measurement says: rows, each the median of many seeded runs, beside its bound."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Figures: TypeAlias = Mapping[str, float]
"""What one run measured, by name: a figure for each row, and those shown beside."""

DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of the result. Without `at_most` it is shown and decides nothing."""

    name: str
    compares: str
    at_most: float | None
    beside: tuple[str, ...] = ()
    """Figures of the same runs whose medians are shown with it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What a reader has to know to judge it: scales, estimates, settings."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Something that can be run from a seed, and the rows that come of it."""

    label: str
    rows: tuple[Row, ...]
    measure: Callable[[int], Figures]
    runs_max: int | None = None
    """Fewer runs than asked for, where one takes long and chance has little part in it."""

    def runs(self, wanted: int) -> int:
        return wanted if self.runs_max is None else min(wanted, self.runs_max)


def summary(row: Row, runs: Sequence[Figures]) -> dict[str, Any]:
    """A row of the result, ready for JSON."""
    values = sorted(figures[row.name] for figures in runs)
    median = statistics.median(values)
    return {
        "name": row.name,
        "compares": row.compares,
        "median": round(median, DIGITS),
        "p10": round(_quantile(values, 0.1), DIGITS),
        "p90": round(_quantile(values, 0.9), DIGITS),
        "bound": row.at_most,
        # Compared as measured, not as rounded for showing.
        "ok": row.at_most is None or median <= row.at_most,
        "runs": len(values),
        "beside": {
            name: round(statistics.median(figures[name] for figures in runs), DIGITS)
            for name in row.beside
        },
        **row.facts,
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of an ordered sample."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
