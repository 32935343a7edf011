"""Offsets that were removed from the log before a pipeline came to read them. Pure.

They are missing from the table for good, so they are told in the run that passes them over, and
written down at the table by the very commit that does: whoever is killed when, it is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neve.bucket.planning import PartitionPlan
from neve.lake.tables.progress import Progress, offset_of

PARTITIONS_TOLD = 10


@dataclass(frozen=True)
class Loss:
    """How many offsets, and which, in words."""

    offsets: int = 0
    text: str = ""


NOTHING_LOST = Loss()


def with_all_lost(plan: PartitionPlan, known: Mapping[int, int]) -> PartitionPlan:
    """The plan of a partition of a topic that the table has begun.

    One that the table does not know yet was added since, so every offset below its start is lost.
    """
    return plan if plan.partition in known else replace(plan, lost=plan.start)


def loss_of(plans: Sequence[PartitionPlan], new: Progress, table: str) -> Loss:
    """What a commit that takes the table to `new` passes over.

    A partition that stands still for now (it cannot be read) loses nothing yet: the commit that
    moves it tells.
    """
    passed = [
        plan
        for plan in plans
        if plan.lost and (offset_of(new, plan.topic_id, plan.partition) or 0) >= plan.start
    ]
    if not passed:
        return NOTHING_LOST
    offsets = sum(plan.lost for plan in passed)
    which = ", ".join(
        f"{plan.start - plan.lost} to {plan.start - 1} of partition {plan.partition}"
        for plan in passed[:PARTITIONS_TOLD]
    )
    if len(passed) > PARTITIONS_TOLD:
        which += f", and more of {len(passed) - PARTITIONS_TOLD} other partitions"
    return Loss(
        offsets,
        f"{passed[0].topic}: {offsets} offsets were removed by retention (or DeleteRecords) before "
        f"they came into {table}, which lacks them for good: {which}",
    )
