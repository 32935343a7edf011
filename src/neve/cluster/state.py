"""What the cluster log amounts to: pure folding, and the payload of its checkpoint.

A record that no longer fits the state it meets (its topic is gone, its epoch is old) changes
nothing: whoever proposed it sees that in the state, and everyone who reads it agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from neve.cluster.records import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    Feature,
    Init,
    Lead,
    ProducerIds,
    PurgeTopic,
    Record,
    Register,
    Release,
    SetConfigs,
    Tiered,
)
from neve.log.envelope import Kind, Stored


class Broker(Stored, frozen=True, kw_only=True):
    """A broker process. `live` is false once the same node registered again."""

    node_id: int
    incarnation: int
    session: str
    inflight: int
    at_ms: int
    host: str = ""
    port: int = 0
    rack: str = ""
    live: bool = True


class StreamPart(Stored, frozen=True, kw_only=True):
    """Where a stretch of a partition's untiered records lies: a stream, from one number to another.

    Without an `end` it goes on to wherever the stream goes.
    """

    epoch: int
    incarnation: int
    start: int = 0
    end: int | None = None


class PartitionState(Stored, frozen=True, kw_only=True):
    """Who leads a partition, under which epoch, and which streams may hold untiered records.

    `leader` is an incarnation; -1 before the first.
    """

    leader: int = -1
    epoch: int = -1
    streams: tuple[StreamPart, ...] = ()


class Topic(Stored, frozen=True, kw_only=True):
    """A topic and its partitions, by number."""

    name: str
    topic_id: str
    at_ms: int
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def id_bytes(self) -> bytes:
        return bytes.fromhex(self.topic_id)


class IdBlock(Stored, frozen=True):
    """Producer ids from `first` up to, not including, `end`."""

    first: int
    end: int


class ClusterState(Stored, frozen=True, kw_only=True):
    """The folded cluster log. Topics by id, brokers by incarnation."""

    cluster_id: str = ""
    feature_level: int = 0
    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    deleted: dict[str, Topic] = msgspec.field(default_factory=dict)
    brokers: dict[int, Broker] = msgspec.field(default_factory=dict)
    id_blocks: dict[int, IdBlock] = msgspec.field(default_factory=dict)
    next_producer_id: int = 0

    def topic(self, name: str) -> Topic | None:
        """The live topic of this name."""
        return next((topic for topic in self.topics.values() if topic.name == name), None)

    def streams(self) -> list[int]:
        """Every incarnation whose stream some partition still needs, in order."""
        return sorted(
            {
                part.incarnation
                for topic in self.topics.values()
                for partition in topic.partitions
                for part in partition.streams
            }
        )


class ClusterRules:
    """The cluster log as a series."""

    record_kind: Kind = Kind.CLUSTER_RECORD
    checkpoint_kind: Kind = Kind.CLUSTER_CHECKPOINT
    record_schema: type[Record] = Record
    state_schema: type[ClusterState] = ClusterState

    def empty(self) -> ClusterState:
        return ClusterState()

    def fold(self, state: ClusterState, number: int, record: Record) -> ClusterState:
        change = record.change
        if isinstance(change, Register):
            return _register(state, number, change)
        return _FOLDS[type(change)](state, change)


_with = msgspec.structs.replace


def _init(state: ClusterState, change: Init) -> ClusterState:
    if state.cluster_id:
        return state
    level = max(state.feature_level, change.feature_level)
    return _with(state, cluster_id=change.cluster_id, feature_level=level)


def _register(state: ClusterState, number: int, change: Register) -> ClusterState:
    needed = set(state.streams())
    brokers: dict[int, Broker] = {}
    for incarnation, broker in state.brokers.items():
        if broker.node_id == change.node_id:
            broker = _with(broker, live=False)  # noqa: PLW2901
        # A dead broker is remembered as long as its stream may hold what nobody has tiered.
        if broker.live or incarnation in needed:
            brokers[incarnation] = broker
    brokers[number] = Broker(
        node_id=change.node_id,
        incarnation=number,
        session=change.session,
        inflight=change.inflight,
        at_ms=change.at_ms,
        host=change.host,
        port=change.port,
        rack=change.rack,
    )
    blocks = {key: block for key, block in state.id_blocks.items() if key in brokers}
    return _with(state, brokers=brokers, id_blocks=blocks)


def _create_topic(state: ClusterState, change: CreateTopic) -> ClusterState:
    used = change.topic_id in state.topics or change.topic_id in state.deleted
    if used or state.topic(change.name) is not None:
        return state
    topic = Topic(
        name=change.name,
        topic_id=change.topic_id,
        at_ms=change.at_ms,
        partitions=(PartitionState(),) * change.partitions,
        configs=change.configs,
    )
    return _with(state, topics={**state.topics, change.topic_id: topic})


def _add_partitions(state: ClusterState, change: AddPartitions) -> ClusterState:
    def grown(topic: Topic) -> Topic:
        missing = max(0, change.partitions - len(topic.partitions))
        return _with(topic, partitions=topic.partitions + (PartitionState(),) * missing)

    return _changed(state, change.topic_id, grown)


def _set_configs(state: ClusterState, change: SetConfigs) -> ClusterState:
    def configured(topic: Topic) -> Topic:
        merged = {**topic.configs, **change.values}
        kept = {name: value for name, value in merged.items() if name not in change.removed}
        return _with(topic, configs=kept)

    return _changed(state, change.topic_id, configured)


def _delete_topic(state: ClusterState, change: DeleteTopic) -> ClusterState:
    topic = state.topics.get(change.topic_id)
    if topic is None:
        return state
    left = {key: value for key, value in state.topics.items() if key != change.topic_id}
    return _with(state, topics=left, deleted={**state.deleted, change.topic_id: topic})


def _purge_topic(state: ClusterState, change: PurgeTopic) -> ClusterState:
    left = {key: value for key, value in state.deleted.items() if key != change.topic_id}
    return _with(state, deleted=left)


def _lead(state: ClusterState, change: Lead) -> ClusterState:
    for move in change.moves:

        def led(partition: PartitionState, move: Any = move) -> PartitionState:
            if move.epoch != partition.epoch + 1:
                return partition
            part = StreamPart(epoch=move.epoch, incarnation=move.incarnation, start=move.start)
            return PartitionState(
                leader=move.incarnation, epoch=move.epoch, streams=(*partition.streams, part)
            )

        state = _changed_partition(state, move.topic_id, move.partition, led)
    return state


def _release(state: ClusterState, change: Release) -> ClusterState:
    for handover in change.handovers:

        def handed(partition: PartitionState, handover: Any = handover) -> PartitionState:
            if handover.epoch != partition.epoch or not partition.streams:
                return partition
            *before, last = partition.streams
            epoch = handover.epoch + 1
            fresh = StreamPart(epoch=epoch, incarnation=handover.successor)
            return PartitionState(
                leader=handover.successor,
                epoch=epoch,
                streams=(*before, _with(last, end=handover.end), fresh),
            )

        state = _changed_partition(state, handover.topic_id, handover.partition, handed)
    return state


def _tiered(state: ClusterState, change: Tiered) -> ClusterState:
    for row in change.parts:

        def pruned(partition: PartitionState, row: Any = row) -> PartitionState:
            # The leader's own part stays, however much of it is tiered: it still grows.
            kept = [
                part
                for part in partition.streams
                if part.epoch > row.epoch or part.epoch == partition.epoch
            ]
            return _with(partition, streams=tuple(kept))

        state = _changed_partition(state, row.topic_id, row.partition, pruned)
    return state


def _producer_ids(state: ClusterState, change: ProducerIds) -> ClusterState:
    block = IdBlock(state.next_producer_id, state.next_producer_id + change.count)
    return _with(
        state,
        next_producer_id=block.end,
        id_blocks={**state.id_blocks, change.incarnation: block},
    )


def _feature(state: ClusterState, change: Feature) -> ClusterState:
    return _with(state, feature_level=max(state.feature_level, change.level))


_FOLDS: dict[type, Callable[[ClusterState, Any], ClusterState]] = {
    Init: _init,
    CreateTopic: _create_topic,
    AddPartitions: _add_partitions,
    SetConfigs: _set_configs,
    DeleteTopic: _delete_topic,
    PurgeTopic: _purge_topic,
    Lead: _lead,
    Release: _release,
    Tiered: _tiered,
    ProducerIds: _producer_ids,
    Feature: _feature,
}


def _changed(state: ClusterState, topic_id: str, change: Callable[[Topic], Topic]) -> ClusterState:
    topic = state.topics.get(topic_id)
    if topic is None:
        return state
    return _with(state, topics={**state.topics, topic_id: change(topic)})


def _changed_partition(
    state: ClusterState,
    topic_id: str,
    number: int,
    change: Callable[[PartitionState], PartitionState],
) -> ClusterState:
    def changed(topic: Topic) -> Topic:
        if not 0 <= number < len(topic.partitions):
            return topic
        partitions = list(topic.partitions)
        partitions[number] = change(partitions[number])
        return _with(topic, partitions=tuple(partitions))

    return _changed(state, topic_id, changed)
