"""Offsets that were removed from the log before a pipeline read them. Pure.

The table lacks them permanently. The run that skips them reports them, and its commit stores them
in the table, so that a crash cannot hide them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neve.bucket.planning import PartitionPlan
from neve.lake.tables.progress import Progress, offset_of

PARTITIONS_SHOWN = 10


@dataclass(frozen=True)
class Loss:
    """The number of offsets that are known to be lost, and a description of all that is lost."""

    offsets: int = 0
    text: str = ""


NOTHING_LOST = Loss()


def with_all_lost(plan: PartitionPlan, known: Mapping[int, int]) -> PartitionPlan:
    """Return the plan of a partition of a topic for which the table already has offsets.

    `known` has these offsets by partition. A partition without one is new, so all offsets below its
    log start are lost.
    """
    return plan if plan.partition in known else replace(plan, lost=plan.start)


def loss_of(plans: Sequence[PartitionPlan], new: Progress, table: str) -> Loss:
    """Return the offsets that a commit of `new` skips: removed ones, and those given up for lost.

    The loss of a partition that cannot be read is reported by the commit that advances it.
    """
    removed, given_up = _removed(plans, new, table), _given_up(plans, new, table)
    losses = (removed, given_up, _leapt(plans, new, table))
    text = "; ".join(loss.text for loss in losses if loss.text)
    return Loss(sum(loss.offsets for loss in losses), text)


def _given_up(plans: Sequence[PartitionPlan], new: Progress, table: str) -> Loss:
    rows = [
        (plan, first, min(end, reached))
        for plan in plans
        if (reached := offset_of(new, plan.topic_id, plan.partition)) is not None
        for first, end in plan.skipped
        if first < reached
    ]
    if not rows:
        return NOTHING_LOST
    offsets = sum(end - first for _, first, end in rows)
    which = _joined(
        [f"{first} to {end - 1} of partition {plan.partition}" for plan, first, end in rows],
        "ranges",
    )
    return Loss(
        offsets,
        f"{rows[0][0].topic}: {offsets} offsets were given up for lost (`neve storage skip` or "
        f"`neve cluster abandon-wal`) before they were read into {table}, which lacks them "
        f"permanently: {which}",
    )


def _leapt(plans: Sequence[PartitionPlan], new: Progress, table: str) -> Loss:
    """Return the losses without a known end. Their offsets are not counted."""
    rows = [
        (plan, first, end)
        for plan in plans
        if (reached := offset_of(new, plan.topic_id, plan.partition)) is not None
        for first, end in plan.open_losses
        if first < reached
    ]
    if not rows:
        return NOTHING_LOST
    which = _joined(
        [
            f"from offset {first} of partition {plan.partition} on, end not known; the log "
            f"continues at {end}"
            for plan, first, end in rows
        ],
        "partitions",
    )
    return Loss(
        0,
        f"{rows[0][0].topic}: records were lost with their WAL store (`neve cluster abandon-wal`) "
        f"before they were read into {table}, which lacks them permanently: {which}",
    )


def _joined(rows: Sequence[str], what: str) -> str:
    shown = ", ".join(rows[:PARTITIONS_SHOWN])
    left = len(rows) - PARTITIONS_SHOWN
    return shown if left <= 0 else f"{shown}, and more of {left} other {what}"


def _removed(plans: Sequence[PartitionPlan], new: Progress, table: str) -> Loss:
    passed = [
        plan
        for plan in plans
        if plan.lost and (offset_of(new, plan.topic_id, plan.partition) or 0) >= plan.start
    ]
    if not passed:
        return NOTHING_LOST
    offsets = sum(plan.lost for plan in passed)
    which = _joined(
        [
            f"{plan.start - plan.lost} to {plan.start - 1} of partition {plan.partition}"
            for plan in passed
        ],
        "partitions",
    )
    return Loss(
        offsets,
        f"{passed[0].topic}: {offsets} offsets were removed by retention (or DeleteRecords) before "
        f"they were read into {table}, which lacks them permanently: {which}",
    )
