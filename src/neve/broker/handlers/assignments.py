"""Manual assignments of partitions to brokers. They are only checked: the store replicates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from neve.broker.errors import AssignmentError


class Assignment(Protocol):
    """The brokers that a request assigns to one partition."""

    broker_ids: list[int]


def check_brokers_named(name: str, assignments: Iterable[Assignment]) -> None:
    """Raise AssignmentError if an assignment has no broker."""
    if not all(each.broker_ids for each in assignments):
        raise AssignmentError(f"an assignment of topic {name!r} names no broker")
