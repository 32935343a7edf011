"""The state of the cluster: what the cluster log folds to, and the payload of its checkpoint.

In every state the leader of a partition is a live process, or -1. `neve.cluster.fold` has the fold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from neve.cluster.records import ClusterStored
from neve.log.wal.store_identity import WalStoreRef

T = TypeVar("T")

# The leader of a partition that has none.
NO_LEADER = -1
# A topic's id in hex, and a partition number.
PartitionKey: TypeAlias = tuple[str, int]


class BrokerRegistration(ClusterStored, frozen=True, kw_only=True):
    """A broker process. `live` is false once its node registered again, it left or was expired.

    `forgotten` is true once its node was removed from the cluster: only its stream is still needed.
    `wal_store` is the store of its stream; None for the bucket itself.
    """

    node_id: int
    incarnation: int
    session: str
    inflight: int
    at_ms: int
    host: str = ""
    port: int = 0
    rack: str = ""
    level: int = 1
    public_key: bytes = b""
    live: bool = True
    forgotten: bool = False
    wal_store: WalStoreRef | None = None


class StreamPart(ClusterStored, frozen=True, kw_only=True):
    """The location of some untiered records of a partition: a stream, from one number to another.

    Without an `end`, it extends to the end of the stream. `end_offset` is the offset after its last
    record, if the leader that released it has recorded that.
    """

    epoch: int
    incarnation: int
    start: int = 0
    end: int | None = None
    end_offset: int | None = None


class PartitionState(ClusterStored, frozen=True, kw_only=True):
    """The leader of a partition, its epoch, and the streams that may hold untiered records.

    `leader` is a live incarnation, or -1 if there is none.
    """

    leader: int = NO_LEADER
    epoch: int = -1
    streams: tuple[StreamPart, ...] = ()


class Topic(ClusterStored, frozen=True, kw_only=True, dict=True):
    """A topic and its partitions, by number.

    `preferred` has the nodes that should lead a partition, in this order, where a client or an
    operator has chosen them. Once the topic is deleted, `deleted_at` is the number of the record
    that did it, 0 below feature level 2. `writers` are the processes that were live then and still
    are; below that level, those that have recorded that they dropped the topic are left out.
    """

    name: str
    topic_id: str
    at_ms: int
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    writers: tuple[int, ...] = ()
    preferred: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    deleted_at: int = 0

    @functools.cached_property
    def id_bytes(self) -> bytes:
        return bytes.fromhex(self.topic_id)

    @functools.cached_property
    def streams(self) -> frozenset[int]:
        """Every incarnation whose stream some partition of this topic still needs."""
        return frozenset(
            part.incarnation for partition in self.partitions for part in partition.streams
        )


class IdBlock(ClusterStored, frozen=True):
    """Producer ids from `first` up to, not including, `end`."""

    first: int
    end: int


class ClusterState(ClusterStored, frozen=True, kw_only=True, dict=True):
    """The folded cluster log. Topics by id, brokers by incarnation.

    It never changes, so its indexes are built once, on first use.
    """

    cluster_id: str = ""
    feature_level: int = 0
    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    deleted: dict[str, Topic] = msgspec.field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = msgspec.field(default_factory=dict)
    id_blocks: dict[int, IdBlock] = msgspec.field(default_factory=dict)
    next_producer_id: int = 0
    broker_configs: dict[int, dict[str, str]] = msgspec.field(default_factory=dict)
    """Configs by node id. Those of `ALL_NODES` apply to nodes that do not override them."""
    draining: tuple[int, ...] = ()
    """The nodes whose brokers should lead no partitions, in order."""
    rebalances: int = 0
    """How often brokers were asked to rebalance at once."""
    lagging: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """By process: the followers of its stream that it found lagging, in order."""
    abandoned_stores: int = 0
    """How many WAL stores were given up."""

    def topic(self, name: str) -> Topic | None:
        """The live topic of this name."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The live topic of this id."""
        return self._by_id.get(topic_id)

    def like(self, name: str) -> Topic | None:
        """Return a live topic with this name, or with a name that is the same in metrics."""
        return self._by_metric_name.get(metric_name(name))

    @functools.cached_property
    def _by_name(self) -> dict[str, Topic]:
        return {topic.name: topic for topic in self.topics.values()}

    @functools.cached_property
    def _by_id(self) -> dict[bytes, Topic]:
        return {topic.id_bytes: topic for topic in self.topics.values()}

    @functools.cached_property
    def _by_metric_name(self) -> dict[str, Topic]:
        return {metric_name(topic.name): topic for topic in self.topics.values()}

    @functools.cached_property
    def partition_count(self) -> int:
        """The partitions of all live topics together."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def wal_stores(self) -> dict[int, WalStoreRef]:
        """The store of each stream that does not lie in the bucket itself, by incarnation."""
        return {
            key: row.wal_store for key, row in self.brokers.items() if row.wal_store is not None
        }

    def streams(self) -> list[int]:
        """Every incarnation whose stream some partition still needs, in order."""
        found: set[int] = set()
        for topic in self.topics.values():  # most are the same as in the state before
            found |= topic.streams
        return sorted(found)

    def once(self, compute: Callable[[ClusterState], T]) -> T:
        """Return what a pure function computes from this state. It is called once for each state.

        All callers get the same object, which they must not change.
        """
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        found: T = self._computed[compute]
        return found

    @functools.cached_property
    def _computed(self) -> dict[Callable[[ClusterState], Any], Any]:
        return {}


def level_of_all(state: ClusterState) -> int:
    """Return the greatest feature level that every live process knows; 0 if none is live."""
    return min((row.level for row in state.brokers.values() if row.live), default=0)


def metric_name(name: str) -> str:
    """Return a topic's name in metrics: like Kafka, with '_' in place of '.'."""
    return name.replace(".", "_")


def is_live(brokers: Mapping[int, BrokerRegistration], incarnation: int) -> bool:
    """Whether this process is registered and was not ended."""
    broker = brokers.get(incarnation)
    return broker is not None and broker.live
