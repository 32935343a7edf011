"""Results of measurements: rows with the median of many seeded runs and its bound."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Figures: TypeAlias = Mapping[str, float]
"""The values of one run by name: one for each row, and those in a row's `beside`."""

DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of the result. Without `at_most` it is only shown and always passes."""

    name: str
    compares: str
    at_most: float | None
    beside: tuple[str, ...] = ()
    """Names of figures of the same runs whose medians are shown with it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Values that a reader needs to interpret it: scales, estimates, settings."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A function that measures one run for a seed, and the rows of its result."""

    label: str
    rows: tuple[Row, ...]
    measure: Callable[[int], Figures]
    runs_max: int | None = None
    """The maximum number of runs, for a measurement that is slow and varies little."""

    def runs(self, wanted: int) -> int:
        return wanted if self.runs_max is None else min(wanted, self.runs_max)


def summary(row: Row, runs: Sequence[Figures]) -> dict[str, Any]:
    """Summarize the runs of a row, in a form for JSON."""
    values = sorted(figures[row.name] for figures in runs)
    median = statistics.median(values)
    return {
        "name": row.name,
        "compares": row.compares,
        "median": round(median, DIGITS),
        "p10": round(_quantile(values, 0.1), DIGITS),
        "p90": round(_quantile(values, 0.9), DIGITS),
        "bound": row.at_most,
        # Compare the exact median, not the rounded one.
        "ok": row.at_most is None or median <= row.at_most,
        "runs": len(values),
        "beside": {
            name: round(statistics.median(figures[name] for figures in runs), DIGITS)
            for name in row.beside
        },
        **row.facts,
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value at index `share * len(ordered)`, rounded down, of an ordered sample."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
