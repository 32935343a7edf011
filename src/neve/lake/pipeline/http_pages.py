"""The HTTP pages of a pipeline: liveness, readiness and metrics.

They are served before the pipeline exists, and report "starting" while Spark starts. Scrapes run on
a separate thread and read counters that the pipeline's thread updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from neve import __version__
from neve.lake.pipeline.runner import TopicReport
from neve.serving.pages import ServicePages, View, process_view
from neve.serving.text import several

REASON_CHARACTERS_MAX = 1000


class PipelinePages(ServicePages):
    """The pages of one process. `reports` is set once the pipeline exists."""

    def __init__(self) -> None:
        self.reports: Sequence[TopicReport] | None = None

    def unready(self) -> str | None:
        """Return why tables are not being filled; None if they are."""
        if self.reports is None or any(each.stepped_ms is None for each in self.reports):
            return "starting"
        failing = [each.failing for each in self.reports if each.failing]
        return "; ".join(failing)[:REASON_CHARACTERS_MAX] or None

    def views(self) -> list[View]:
        return [partial(process_view, __version__), partial(lake_view, self.reports or ())]


def lake_view(reports: Sequence[TopicReport]) -> Iterator[str]:
    """Yield the samples of each metric family, one for each topic with a value."""
    for name, value_of in _VALUES.items():
        values = [((each.topic, each.table), value_of(each)) for each in reports]
        yield several(name, [(labels, value) for labels, value in values if value is not None])


def _seconds(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000


_VALUES: dict[str, Callable[[TopicReport], float | None]] = {
    "neve_lake_rows_total": lambda each: each.rows,
    "neve_lake_dead_letters_total": lambda each: each.bad,
    "neve_lake_commits_total": lambda each: each.commits,
    "neve_lake_lost_offsets_total": lambda each: each.lost,
    "neve_lake_lag_offsets": lambda each: each.left,
    "neve_lake_failing": lambda each: int(bool(each.failing)),
    "neve_lake_last_commit_timestamp_seconds": lambda each: _seconds(each.committed_ms),
    "neve_lake_last_step_timestamp_seconds": lambda each: _seconds(each.stepped_ms),
}
