"""The fold of the cluster log: the state after one more record, as a pure function.

A record that no longer fits the state (its topic is deleted, its epoch is old) changes nothing. The
process that proposed it sees that in the state, and all readers agree.

In every state the leader of a partition is a live process, or -1. A process that is not live gets
no partition, no row takes a partition from a live leader, and a record that ends a process moves
its partitions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from neve.cluster.fold_changes import changed_partitions, changed_topic
from neve.cluster.records import (
    AbandonWal,
    AddPartitions,
    ClusterRecord,
    CreateTopic,
    DeleteTopic,
    Deregister,
    Dropped,
    Expire,
    Feature,
    ForgetNode,
    Handover,
    Init,
    Lead,
    Move,
    ProducerIds,
    PurgeTopic,
    Rebalance,
    Register,
    Release,
    SetBrokerConfigs,
    SetConfigs,
    SetDraining,
    SetLagging,
    SetPreferred,
    Tiered,
    TieredPart,
)
from neve.cluster.state import (
    NO_LEADER,
    BrokerRegistration,
    ClusterState,
    IdBlock,
    PartitionState,
    StreamPart,
    Topic,
    is_live,
)
from neve.log.envelope import Kind

# From this feature level on, processes say in pings up to which number they have dropped what was
# deleted.
POSITIONS_LEVEL = 2


class ClusterRules:
    """The cluster log as a series."""

    record_kind: Kind = Kind.CLUSTER_RECORD
    checkpoint_kind: Kind = Kind.CLUSTER_CHECKPOINT
    record_schema: type[ClusterRecord] = ClusterRecord
    state_schema: type[ClusterState] = ClusterState

    def empty(self) -> ClusterState:
        return ClusterState()

    def fold(self, state: ClusterState, number: int, record: ClusterRecord) -> ClusterState:
        change = record.change
        if isinstance(change, Register):
            return _register(state, number, change)
        if isinstance(change, DeleteTopic):
            return _delete_topic(state, number, change)
        return _FOLDS[type(change)](state, change)


_with = msgspec.structs.replace


def _init(state: ClusterState, change: Init) -> ClusterState:
    if state.cluster_id:
        return state
    level = max(state.feature_level, change.feature_level)
    return _with(state, cluster_id=change.cluster_id, feature_level=level)


def _register(state: ClusterState, number: int, change: Register) -> ClusterState:
    earlier = [key for key, row in state.brokers.items() if row.node_id == change.node_id]
    broker = BrokerRegistration(
        node_id=change.node_id,
        incarnation=number,
        session=change.session,
        inflight=change.inflight,
        at_ms=change.at_ms,
        host=change.host,
        port=change.port,
        rack=change.rack,
        level=change.level,
        public_key=change.public_key,
        wal_store=change.wal_store,
    )
    registered = _with(state, brokers={**state.brokers, number: broker})
    return _ended(registered, earlier, change.moves)


def _ends(state: ClusterState, change: Expire | Deregister) -> ClusterState:
    if not is_live(state.brokers, change.incarnation):
        return state
    return _ended(state, [change.incarnation], change.moves)


def _ended(state: ClusterState, ended: Iterable[int], moves: Iterable[Move]) -> ClusterState:
    """Return the state after these processes have ended and their partitions were moved."""
    over = {key for key in ended if key in state.brokers and state.brokers[key].live}
    brokers = {
        key: _with(row, live=False) if key in over else row for key, row in state.brokers.items()
    }
    state = _without_dead_leaders(_with(state, brokers=brokers))
    state = changed_partitions(state, moves, functools.partial(_led, state.brokers))
    # A dead broker is remembered as long as its stream may hold records that are not tiered.
    needed = set(state.streams())
    brokers = {key: row for key, row in brokers.items() if row.live or key in needed}
    blocks = {key: block for key, block in state.id_blocks.items() if key in brokers}
    deleted = {
        key: _without_writers(topic, over) if topic.writers else topic
        for key, topic in state.deleted.items()
    }
    lagging = {key: rows for key, rows in state.lagging.items() if is_live(brokers, key)}
    return _with(state, brokers=brokers, id_blocks=blocks, deleted=deleted, lagging=lagging)


def _without_dead_leaders(state: ClusterState) -> ClusterState:
    """Return the state with no leader for partitions whose leader is not live."""

    def is_orphan(partition: PartitionState) -> bool:
        return partition.leader != NO_LEADER and not is_live(state.brokers, partition.leader)

    topics = dict(state.topics)
    for key, topic in topics.items():
        if any(map(is_orphan, topic.partitions)):
            partitions = tuple(
                _with(row, leader=NO_LEADER) if is_orphan(row) else row for row in topic.partitions
            )
            topics[key] = _with(topic, partitions=partitions)
    return _with(state, topics=topics)


def _create_topic(state: ClusterState, change: CreateTopic) -> ClusterState:
    used = change.topic_id in state.topics or change.topic_id in state.deleted
    if used or state.topic(change.name) is not None:
        return state
    topic = Topic(
        name=change.name,
        topic_id=change.topic_id,
        at_ms=change.at_ms,
        partitions=_created(state, change.partitions, change.leaders),
        configs=change.configs,
        preferred=_preferred(change.preferred, change.partitions),
    )
    return _with(state, topics={**state.topics, change.topic_id: topic})


def _created(
    state: ClusterState, count: int, leaders: tuple[int, ...]
) -> tuple[PartitionState, ...]:
    """Return new partitions, the first of them led by these leaders as far as they are live."""
    rows = []
    for leader in leaders[:count]:
        if is_live(state.brokers, leader):
            part = StreamPart(epoch=0, incarnation=leader)
            rows.append(PartitionState(leader=leader, epoch=0, streams=(part,)))
        else:
            rows.append(PartitionState())
    return (*rows, *(PartitionState(),) * (count - len(rows)))


def _add_partitions(state: ClusterState, change: AddPartitions) -> ClusterState:
    def grown(topic: Topic) -> Topic:
        missing = max(0, change.partitions - len(topic.partitions))
        created = _created(state, missing, change.leaders)
        partitions = topic.partitions + created
        preferred = _preferred({**change.preferred, **topic.preferred}, len(partitions))
        return _with(topic, partitions=partitions, preferred=preferred)

    return changed_topic(state, change.topic_id, grown)


def _preferred(nodes: Mapping[int, tuple[int, ...]], partitions: int) -> dict[int, tuple[int, ...]]:
    """Return the preferred nodes of existing partitions, without empty lists."""
    existing = range(partitions)
    return {number: row for number, row in sorted(nodes.items()) if row and number in existing}


def _set_preferred(state: ClusterState, change: SetPreferred) -> ClusterState:
    changed: dict[str, dict[int, tuple[int, ...]]] = {}
    for row in change.preferences:
        if row.topic_id in state.topics:
            changed.setdefault(row.topic_id, {})[row.partition] = row.nodes
    topics = dict(state.topics)
    for topic_id, nodes in changed.items():
        topic = topics[topic_id]
        preferred = _preferred({**topic.preferred, **nodes}, len(topic.partitions))
        topics[topic_id] = _with(topic, preferred=preferred)
    return _with(state, topics=topics)


def _rebalance(state: ClusterState, change: Rebalance) -> ClusterState:
    del change
    return _with(state, rebalances=state.rebalances + 1)


def _forget_node(state: ClusterState, change: ForgetNode) -> ClusterState:
    node_id = change.node_id
    own = {key: row for key, row in state.brokers.items() if row.node_id == node_id}
    if any(row.live for row in own.values()):
        return state
    forgotten = {key: _with(row, forgotten=True) for key, row in own.items()}
    topics = {key: _without_node(topic, node_id) for key, topic in state.topics.items()}
    configs = {key: given for key, given in state.broker_configs.items() if key != node_id}
    return _with(
        state,
        brokers={**state.brokers, **forgotten},
        topics=topics,
        broker_configs=configs,
        draining=tuple(each for each in state.draining if each != node_id),
    )


def _without_node(topic: Topic, node_id: int) -> Topic:
    if not any(node_id in nodes for nodes in topic.preferred.values()):
        return topic
    left = {
        number: tuple(each for each in nodes if each != node_id)
        for number, nodes in topic.preferred.items()
    }
    return _with(topic, preferred=_preferred(left, len(topic.partitions)))


def _set_configs(state: ClusterState, change: SetConfigs) -> ClusterState:
    def configured(topic: Topic) -> Topic:
        return _with(topic, configs=_merged(topic.configs, change))

    return changed_topic(state, change.topic_id, configured)


def _set_broker_configs(state: ClusterState, change: SetBrokerConfigs) -> ClusterState:
    configs = _merged(state.broker_configs.get(change.node_id, {}), change)
    nodes = {**state.broker_configs, change.node_id: configs}
    return _with(state, broker_configs={key: given for key, given in nodes.items() if given})


def _set_draining(state: ClusterState, change: SetDraining) -> ClusterState:
    others = {node_id for node_id in state.draining if node_id != change.node_id}
    return _with(
        state, draining=tuple(sorted([*others, change.node_id] if change.draining else others))
    )


def _set_lagging(state: ClusterState, change: SetLagging) -> ClusterState:
    if not is_live(state.brokers, change.incarnation):
        return state
    lagging = {**state.lagging, change.incarnation: tuple(sorted(set(change.followers)))}
    return _with(state, lagging={key: rows for key, rows in lagging.items() if rows})


def _merged(before: dict[str, str], change: SetConfigs | SetBrokerConfigs) -> dict[str, str]:
    merged = {**before, **change.values}
    return {name: value for name, value in merged.items() if name not in change.removed}


def _delete_topic(state: ClusterState, number: int, change: DeleteTopic) -> ClusterState:
    topic = state.topics.get(change.topic_id)
    if topic is None:
        return state
    left = {key: value for key, value in state.topics.items() if key != change.topic_id}
    # A process that led it earlier may still be writing: only the end of the process rules it out.
    writers = tuple(sorted(key for key, broker in state.brokers.items() if broker.live))
    # Versions of level 1 do not have the field, and would drop it from a checkpoint.
    deleted_at = number if state.feature_level >= POSITIONS_LEVEL else 0
    deleted = {
        **state.deleted,
        change.topic_id: _with(topic, writers=writers, deleted_at=deleted_at),
    }
    return _with(state, topics=left, deleted=deleted)


def _dropped(state: ClusterState, change: Dropped) -> ClusterState:
    deleted = dict(state.deleted)
    for topic_id in change.topic_ids:
        if topic_id in deleted:
            deleted[topic_id] = _without_writers(deleted[topic_id], [change.incarnation])
    return _with(state, deleted=deleted)


def _without_writers(topic: Topic, ended: Iterable[int]) -> Topic:
    gone = set(ended)
    return _with(topic, writers=tuple(row for row in topic.writers if row not in gone))


def _purge_topic(state: ClusterState, change: PurgeTopic) -> ClusterState:
    left = {key: value for key, value in state.deleted.items() if key != change.topic_id}
    return _with(state, deleted=left)


def _lead(state: ClusterState, change: Lead) -> ClusterState:
    return changed_partitions(state, change.moves, functools.partial(_led, state.brokers))


def _led(
    brokers: Mapping[int, BrokerRegistration], partition: PartitionState, move: Move
) -> PartitionState:
    """Return the partition under its new leader; unchanged if the move does not apply."""
    has_leader = partition.leader != NO_LEADER
    if has_leader or move.epoch != partition.epoch + 1 or not is_live(brokers, move.incarnation):
        return partition
    part = StreamPart(epoch=move.epoch, incarnation=move.incarnation, start=move.start)
    return PartitionState(
        leader=move.incarnation, epoch=move.epoch, streams=(*partition.streams, part)
    )


def _release(state: ClusterState, change: Release) -> ClusterState:
    def handed(partition: PartitionState, handover: Handover) -> PartitionState:
        if partition.leader == NO_LEADER or handover.epoch != partition.epoch:
            return partition
        if not is_live(state.brokers, handover.successor):
            return partition
        *before, last = partition.streams
        epoch = handover.epoch + 1
        released = _with(last, end=handover.end, end_offset=handover.end_offset)
        fresh = StreamPart(epoch=epoch, incarnation=handover.successor)
        return PartitionState(
            leader=handover.successor,
            epoch=epoch,
            streams=(*before, released, fresh),
        )

    return changed_partitions(state, change.handovers, handed)


def _tiered(state: ClusterState, change: Tiered) -> ClusterState:
    def pruned(partition: PartitionState, row: TieredPart) -> PartitionState:
        # The leader's own part stays, however much of it is tiered: it still grows.
        kept = [
            part
            for part in partition.streams
            if part.epoch > row.epoch or part.epoch == partition.epoch
        ]
        return _with(partition, streams=tuple(kept))

    return changed_partitions(state, change.parts, pruned)


def _abandon_wal(state: ClusterState, change: AbandonWal) -> ClusterState:
    gone = [key for key, ref in state.wal_stores().items() if ref.store_id == change.store_id]
    if not gone:
        return state

    def without(partition: PartitionState) -> PartitionState:
        kept = tuple(part for part in partition.streams if part.incarnation not in gone)
        return partition if len(kept) == len(partition.streams) else _with(partition, streams=kept)

    topics = {
        key: _with(topic, partitions=tuple(map(without, topic.partitions)))
        for key, topic in state.topics.items()
    }
    abandoned = _with(state, topics=topics, abandoned_stores=state.abandoned_stores + 1)
    return _ended(abandoned, gone, change.moves)


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
    Expire: _ends,
    Deregister: _ends,
    SetDraining: _set_draining,
    SetPreferred: _set_preferred,
    Rebalance: _rebalance,
    ForgetNode: _forget_node,
    SetLagging: _set_lagging,
    CreateTopic: _create_topic,
    AddPartitions: _add_partitions,
    SetConfigs: _set_configs,
    SetBrokerConfigs: _set_broker_configs,
    Dropped: _dropped,
    PurgeTopic: _purge_topic,
    Lead: _lead,
    Release: _release,
    Tiered: _tiered,
    AbandonWal: _abandon_wal,
    ProducerIds: _producer_ids,
    Feature: _feature,
}
