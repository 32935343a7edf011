"""Resolves the options of a read to partitions and offsets.

Also checks `failOnDataLoss` against the plans: requested offsets must not be below the log start or
beyond the log end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neve.bucket.model import (
    EARLIEST,
    LATEST,
    OFFSET_MAX,
    PartitionName,
    TopicInfo,
    raise_failures,
)
from neve.bucket.planning import PartitionPlan
from neve.bucket.sync_bucket import Bucket
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
class ScanRequest:
    """Partitions of one topic with their requested offsets; a missing offset means no bound."""

    topic: TopicInfo
    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)


def chosen_topics(
    bucket: Bucket, subscription: Subscription, *, missing_ok: bool = False
) -> list[TopicInfo]:
    """Return the topics and partitions of a subscription as they are now.

    Raises NoTopicError for a missing topic, unless `missing_ok`, and for a missing partition.
    """
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
            raise NoTopicError(f"topic {name!r} does not exist in this bucket")
        partitions = subscription.assigned.get(name, topics[name].partitions)
        if unknown := [each for each in partitions if each not in topics[name].partitions]:
            raise NoTopicError(f"partition {unknown[0]} does not exist in topic {name!r}")
        found.append(topics[name]._replace(partitions=partitions))
    return found


def check_named(topics: Sequence[TopicInfo], side: str, position: Position) -> None:
    """Raise InvalidError if a position names a partition that is not read."""
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
                    f"{option} names partition {partition} of {topic!r}, which this read "
                    "does not include"
                )


def plan_batch(bucket: Bucket, options: ReadOptions, bounds: RowBounds) -> list[PartitionPlan]:
    """Plan a batch read. With `failOnDataLoss`, raises LostRangeError for missing offsets."""
    topics = chosen_topics(bucket, options.subscription)
    check_named(topics, "starting", options.starting or EARLIEST)
    check_named(topics, "ending", options.ending)
    wanted = [_narrowed(topic, bounds) for topic in topics if bounds.wants_topic(topic.name)]
    requests = [
        ScanRequest(
            topic,
            offsets_at(bucket, topic, "starting", options.starting or EARLIEST, options),
            offsets_at(bucket, topic, "ending", options.ending, options),
        )
        for topic in wanted
        if topic.partitions
    ]
    plans = plan_requests(bucket, requests, bounds)
    raise_failures({name_of(plan): plan.failure for plan in plans if plan.failure is not None})
    if options.fail_on_data_loss:
        check_losses(plans, requests, bounds)
    return plans


def _narrowed(topic: TopicInfo, bounds: RowBounds) -> TopicInfo:
    kept = tuple(each for each in topic.partitions if bounds.wants_partition(each))
    return topic._replace(partitions=kept)


def plan_requests(
    bucket: Bucket, requests: Sequence[ScanRequest], bounds: RowBounds
) -> list[PartitionPlan]:
    """Plan the requested partitions within their own bounds and `bounds`."""
    plans: list[PartitionPlan] = []
    for each in requests:
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


def check_losses(
    plans: Sequence[PartitionPlan], requests: Sequence[ScanRequest], bounds: RowBounds
) -> None:
    """Raise LostRangeError for requested offsets that do not exist."""
    by_name = {each.topic.name: each for each in requests}
    for plan in plans:
        named = by_name[plan.topic]
        if plan.partition in named.first and plan.lost > 0:
            raise LostRangeError(
                f"{name_of(plan)}: offsets {named.first[plan.partition]} to {plan.start - 1} are "
                f"below the log start at {plan.start}: retention or a deletion removed them; set "
                "failOnDataLoss to false to skip them"
            )
        end = min(named.end.get(plan.partition, 0), bounds.to_offset)
        if end > plan.end:
            raise LostRangeError(
                f"{name_of(plan)}: offsets up to {end - 1} were requested, and the log ends at "
                f"{plan.end}; set failOnDataLoss to false to read up to there"
            )


def offsets_at(
    bucket: Bucket, topic: TopicInfo, side: str, position: Position, options: ReadOptions
) -> dict[int, int]:
    """Resolve a position to offsets by partition; `side` is `starting` or `ending`.

    Leaves out partitions that are read from their earliest offset on, or up to their latest one.
    """
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
    """Return True if the position is the current end of the partition."""
    if isinstance(position, AtOffsets):
        return position.offsets.get(topic, {}).get(partition) == LATEST_NUMBER
    return position == LATEST


def is_given(position: Position, topic: str, partition: int) -> bool:
    """Return True if the position is an explicit offset, which does not change over time."""
    return (
        isinstance(position, AtOffsets) and position.offsets.get(topic, {}).get(partition, -1) >= 0
    )


def _complete(given: ByPartition, topic: TopicInfo, option: str) -> Mapping[int, int]:
    """Return an option's numbers for a topic.

    Raises InvalidError if a partition has none, as Spark's Kafka source does.
    """
    numbers = given.get(topic.name, {})
    if left_out := [each for each in topic.partitions if each not in numbers]:
        raise InvalidError(
            f"{option} has no value for partition {left_out[0]} of {topic.name!r}: name "
            "every partition (-2 is its earliest offset, -1 its latest)"
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
    """Return the first offset of each partition, or the end offset if `edge` is LATEST."""
    plans = bucket.plan(topic.name, topic.partitions, from_offset=LATEST)
    raise_failures({name_of(plan): plan.failure for plan in plans if plan.failure is not None})
    return {plan.partition: plan.start if edge == EARLIEST else plan.end for plan in plans}


def offset_at_time(bucket: Bucket, topic: TopicInfo, partition: int, moment: int) -> int | None:
    """Return the first offset with at least this timestamp; None if all records are older."""
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
            f"{topic.name}-{partition} has no record with a timestamp >= {moment}: set "
            "startingOffsetsByTimestampStrategy to latest to start at its end"
        )
    return edge_offsets(bucket, topic._replace(partitions=(partition,)), LATEST)[partition]


def name_of(plan: PartitionPlan) -> PartitionName:
    """Return the name of a plan's partition."""
    return PartitionName(plan.topic, plan.partition)
