"""From options to what is read of which partitions: names, edges and moments become offsets.

`failOnDataLoss` is decided here, as far as it shows in a plan: offsets that were asked for and are
below the log's start, or beyond its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neve.bucket.facade import Bucket
from neve.bucket.model import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    PartitionName,
    TopicInfo,
    raise_failures,
)
from neve.bucket.planning import PartitionPlan
from neve.cluster.log import NoTopicError
from neve.errors import InvalidError, LostRangeError
from neve.lake.scan.bounds import RowBounds
from neve.lake.scan.options import ReadOptions, Subscription
from neve.lake.scan.positions import (
    EARLIEST_NUMBER,
    LATEST_NUMBER,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    ByPartition,
    Position,
)
from neve.log.segment.state_table import is_internal


@dataclass(frozen=True)
class Asked:
    """Partitions of one topic, with the offsets that were named for them; others have no bound."""

    topic: TopicInfo
    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)


def chosen_topics(
    bucket: Bucket, subscription: Subscription, *, missing_ok: bool = False
) -> list[TopicInfo]:
    """The topics and partitions of a subscription as they are now; one that is missing is told."""
    topics = {topic.name: topic for topic in bucket.topics()}
    if subscription.pattern is not None:  # as in Kafka, a pattern never means internal topics
        return [
            topic
            for topic in topics.values()
            if subscription.wants(topic.name) and not is_internal(topic.name)
        ]
    found = []
    for name in subscription.names or subscription.assigned:
        if name not in topics:
            if missing_ok:
                continue
            raise NoTopicError(f"there is no topic {name!r} in this bucket")
        partitions = subscription.assigned.get(name, topics[name].partitions)
        if unknown := [each for each in partitions if each not in topics[name].partitions]:
            raise NoTopicError(f"topic {name!r} has no partition {unknown[0]}")
        found.append(topics[name]._replace(partitions=partitions))
    return found


def check_named(topics: Sequence[TopicInfo], side: str, position: Position) -> None:
    """Refuse a position that names a partition which is not read: most likely it is misspelt."""
    if isinstance(position, AtOffsets):
        option, named = f"{side}Offsets", position.offsets
    elif isinstance(position, AtTimestamps):
        option, named = f"{side}OffsetsByTimestamp", position.timestamps
    else:
        return
    read = {topic.name: topic.partitions for topic in topics}
    for topic, numbers in named.items():
        for partition in numbers:
            if partition not in read.get(topic, ()):
                raise InvalidError(
                    f"{option} names partition {partition} of {topic!r}, which is not among the "
                    "partitions that are read"
                )


def plan_batch(bucket: Bucket, options: ReadOptions, bounds: RowBounds) -> list[PartitionPlan]:
    """Plans of everything that a batch is to read."""
    topics = chosen_topics(bucket, options.subscription)
    check_named(topics, "starting", options.starting or EARLIEST)
    check_named(topics, "ending", options.ending)
    wanted = [_narrowed(topic, bounds) for topic in topics if bounds.wants_topic(topic.name)]
    asked = [
        Asked(
            topic,
            offsets_at(bucket, topic, "starting", options.starting or EARLIEST, options),
            offsets_at(bucket, topic, "ending", options.ending, options),
        )
        for topic in wanted
        if topic.partitions
    ]
    plans = plan_asked(bucket, asked, bounds)
    raise_failures({name_of(plan): plan.failure for plan in plans if plan.failure is not None})
    if options.fail_on_data_loss:
        check_losses(plans, asked, bounds)
    return plans


def _narrowed(topic: TopicInfo, bounds: RowBounds) -> TopicInfo:
    kept = tuple(each for each in topic.partitions if bounds.wants_partition(each))
    return topic._replace(partitions=kept)


def plan_asked(bucket: Bucket, asked: Sequence[Asked], bounds: RowBounds) -> list[PartitionPlan]:
    """Plans of these partitions within their own and these bounds."""
    plans: list[PartitionPlan] = []
    for each in asked:
        plans += bucket.plan(
            each.topic.name,
            each.topic.partitions,
            from_offset={
                partition: max(each.first.get(partition, 0), bounds.from_offset)
                for partition in each.topic.partitions
                if partition in each.first or bounds.from_offset > 0
            },
            to_offset={
                partition: min(each.end.get(partition, OFFSET_MAX), bounds.to_offset)
                for partition in each.topic.partitions
            },
            from_timestamp=bounds.from_timestamp,
            to_timestamp=bounds.to_timestamp,
        )
    return plans


def check_losses(plans: Sequence[PartitionPlan], asked: Sequence[Asked], bounds: RowBounds) -> None:
    """Raise LostRangeError for offsets that were named and are not there."""
    by_name = {each.topic.name: each for each in asked}
    for plan in plans:
        named = by_name[plan.topic]
        if plan.partition in named.first and plan.lost > 0:
            raise LostRangeError(
                f"{name_of(plan)}: offsets {named.first[plan.partition]} to {plan.start - 1} are "
                f"below the log's start at {plan.start}: retention or a deletion removed them; set "
                "failOnDataLoss to false to go on without them"
            )
        end = min(named.end.get(plan.partition, 0), bounds.to_offset)
        if end > plan.end:
            raise LostRangeError(
                f"{name_of(plan)}: offsets up to {end - 1} were asked for, and the log ends at "
                f"{plan.end}; set failOnDataLoss to false to read what there is"
            )


def offsets_at(
    bucket: Bucket, topic: TopicInfo, side: str, position: Position, options: ReadOptions
) -> dict[int, int]:
    """A position as offsets by partition. A partition at the edge it has anyway is left out."""
    own_edge = EARLIEST if side == "starting" else LATEST
    if isinstance(position, str):
        return {} if position == own_edge else edge_offsets(bucket, topic, position)
    if isinstance(position, AtOffsets):
        given = _complete(position.offsets, topic, f"{side}Offsets")
        return _numbers(bucket, topic, given, own_edge)
    if isinstance(position, AtTimestamp):
        moments: Mapping[int, int] = dict.fromkeys(topic.partitions, position.timestamp)
    else:
        moments = _complete(position.timestamps, topic, f"{side}OffsetsByTimestamp")
    found: dict[int, int] = {}
    for partition, moment in moments.items():
        offset = offset_at_time(bucket, topic, partition, moment)
        if offset is not None:
            found[partition] = offset
        elif side == "starting":
            found[partition] = _behind_all(bucket, topic, partition, moment, options)
    return found


def is_latest(position: Position, topic: str, partition: int) -> bool:
    """Whether a position is a partition's end, whatever that is at the moment."""
    if isinstance(position, AtOffsets):
        return position.offsets.get(topic, {}).get(partition) == LATEST_NUMBER
    return position == LATEST


def is_given(position: Position, topic: str, partition: int) -> bool:
    """Whether a position is an offset that somebody named, and so the same whenever it is asked."""
    return (
        isinstance(position, AtOffsets) and position.offsets.get(topic, {}).get(partition, -1) >= 0
    )


def _complete(given: ByPartition, topic: TopicInfo, option: str) -> Mapping[int, int]:
    """What an option says of a topic: as with Spark's Kafka source, of every partition."""
    numbers = given.get(topic.name, {})
    if left_out := [each for each in topic.partitions if each not in numbers]:
        raise InvalidError(
            f"{option} says nothing of partition {left_out[0]} of {topic.name!r}: name every "
            "partition (-2 is its earliest offset, -1 its latest)"
        )
    return {partition: numbers[partition] for partition in topic.partitions}


def _numbers(
    bucket: Bucket, topic: TopicInfo, given: Mapping[int, int], own_edge: str
) -> dict[int, int]:
    edges = {EARLIEST_NUMBER: EARLIEST, LATEST_NUMBER: LATEST}
    found = {partition: number for partition, number in given.items() if number not in edges}
    for number, edge in edges.items():
        at_edge = tuple(partition for partition in given if given[partition] == number)
        if at_edge and edge != own_edge:
            found |= edge_offsets(bucket, topic._replace(partitions=at_edge), edge)
    return found


def edge_offsets(bucket: Bucket, topic: TopicInfo, edge: str) -> dict[int, int]:
    """The first offset of each partition, or the one behind its last."""
    plans = bucket.plan(topic.name, topic.partitions, from_offset=LATEST)
    raise_failures({name_of(plan): plan.failure for plan in plans if plan.failure is not None})
    return {plan.partition: plan.start if edge == EARLIEST else plan.end for plan in plans}


def offset_at_time(bucket: Bucket, topic: TopicInfo, partition: int, moment: int) -> int | None:
    """The first record that is not older than a moment: what Kafka answers; None if all are."""
    batches = bucket.arrow(topic.name, partition, from_timestamp=moment, columns=["offset"])
    with contextlib.closing(batches):  # type: ignore[type-var]
        for batch in batches:
            return int(batch.column(0)[0].as_py())
    return None


def _behind_all(
    bucket: Bucket, topic: TopicInfo, partition: int, moment: int, options: ReadOptions
) -> int:
    if not options.start_at_latest_if_newer:
        raise InvalidError(
            f"{topic.name}-{partition} has no record as young as {moment}: set "
            "startingOffsetsByTimestampStrategy to latest to begin behind its last one"
        )
    return edge_offsets(bucket, topic._replace(partitions=(partition,)), LATEST)[partition]


def name_of(plan: PartitionPlan) -> PartitionName:
    """A plan's partition as people call it."""
    return PartitionName(plan.topic, plan.partition)
