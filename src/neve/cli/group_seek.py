"""Implementation of `neve group seek`: reset the committed offsets of a group without members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neve.cli import output, ranges
from neve.cli.connection import BrokerError, Connection, unknown_partition
from neve.cli.group_admin import GONE, find, state_name
from neve.cli.group_lag import Place, committed
from neve.cli.offsets import Bound, Span

SEEKABLE = ("Empty", GONE)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The new position, and the partitions of each topic; None means all of them."""

    to: Bound
    topics: Mapping[str, Sequence[int] | None]
    allow_new_topics: bool = False


def seek(
    connection: Connection, group: str, target: Target, *, dry_run: bool, as_json: bool
) -> int:
    """Commit the requested offsets, or only print them."""
    _refuse_members(connection, group)
    before = committed(connection, group)
    places = _places(connection, group, target, before)
    placed = ranges.place(connection, Span(target.to), places)
    after = {each.place: each.begin for each in placed}
    if not dry_run:
        _commit(connection, group, after)
    rows = [
        (topic, partition, before.get((topic, partition)), offset)
        for (topic, partition), offset in after.items()
    ]
    if as_json:
        titles = ("topic", "partition", "before", "after")
        output.write_json(
            {
                "group": group,
                "dry_run": dry_run,
                "partitions": [dict(zip(titles, row, strict=True)) for row in rows],
            }
        )
        return 0
    output.print_table(
        ("topic", "partition", "before", "after"),
        [(topic, number, "-" if old is None else old, new) for topic, number, old, new in rows],
    )
    if dry_run:
        print("dry run: no offset was committed")
    return 0


def _refuse_members(connection: Connection, group: str) -> None:
    try:
        found: Any = find(connection, group)
    except BrokerError as error:
        if error.code == "GROUP_ID_NOT_FOUND":  # the first commit creates the group
            return
        raise
    if state_name(found.state) not in SEEKABLE:
        raise BrokerError(
            f"group {group} has {len(found.members)} members (it is {state_name(found.state)}): "
            "stop them first, or they would overwrite the offsets",
            "NON_EMPTY_GROUP",
        )


def _places(
    connection: Connection, group: str, target: Target, before: Mapping[Place, int]
) -> list[Place]:
    if not target.topics:
        if not before:
            raise BrokerError(
                f"group {group} has no committed offsets: name topics with --topics and add "
                "--allow-new-topics"
            )
        return sorted(before)
    known = {topic for topic, _ in before}
    places: list[Place] = []
    for topic, numbers in sorted(target.topics.items()):
        if topic not in known and not target.allow_new_topics:
            raise BrokerError(
                f"group {group} has no committed offsets for topic {topic}: check the name, or "
                "add --allow-new-topics"
            )
        there = connection.partitions(topic)
        chosen = there if numbers is None else sorted(numbers)
        if missing := sorted(set(chosen) - set(there)):
            raise unknown_partition(topic, missing[0], there)
        places += [(topic, number) for number in chosen]
    return places


def _commit(connection: Connection, group: str, offsets: Mapping[Place, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    asked = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    futures = connection.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, asked)], request_timeout=connection.timeout_seconds
    )
    answered = connection.result(futures[group], f"group {group}")
    for each in answered.topic_partitions:
        if each.error is not None:
            raise BrokerError(f"group {group}: {each.topic}-{each.partition}: {each.error.str()}")
