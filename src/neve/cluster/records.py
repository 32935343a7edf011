"""The records of the cluster log: one change per number.

A process stops at a kind of record that it does not know, because it cannot know what it would
miss. It ignores fields that it does not know: a field is only added if processes without it may do
so. The feature level prevents new kinds and fields from being written before every broker knows
them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from neve.log.envelope import Stored
from neve.log.wal.store_identity import WalStoreRef

FEATURE_LEVEL = 2
ALL_NODES = -1


class ClusterStored(Stored, frozen=True, forbid_unknown_fields=False):
    """The base of everything in the cluster log. Unknown fields are ignored: see above."""


class Init(ClusterStored, frozen=True, tag="init"):
    """The first record: the bucket becomes a cluster."""

    cluster_id: str
    feature_level: int
    at_ms: int


class Move(ClusterStored, frozen=True, kw_only=True):
    """One partition under a new leader. Its records begin at `start` of the leader's stream."""

    topic_id: str
    partition: int
    epoch: int
    incarnation: int
    start: int = 0


class Register(ClusterStored, frozen=True, kw_only=True, tag="register"):
    """A broker process starts. The record's number is its incarnation and its stream's name.

    It ends any earlier incarnation of the same node; `moves` moves the partitions of that one to
    the new one. `session` is random, so that the process recognises its own registration.
    `inflight` bounds how far ahead the stream may write: a process that seals it needs this.
    `level` is the greatest feature level that the process knows. Other brokers authenticate it by
    its `public_key` (X25519), which is empty if it does not talk to them. `wal_store` is the store
    of its stream, unless that is the bucket itself.
    """

    node_id: int
    session: str
    inflight: int
    at_ms: int
    host: str = ""
    port: int = 0
    rack: str = ""
    level: int = 1
    public_key: bytes = b""
    moves: tuple[Move, ...] = ()
    wal_store: WalStoreRef | None = None


class Expire(ClusterStored, frozen=True, kw_only=True, tag="expire"):
    """A broker process is declared dead. `moves` moves each partition that it led to a live leader.

    Its stream must be sealed and read before its partitions are served again.
    """

    incarnation: int
    moves: tuple[Move, ...] = ()


class Deregister(ClusterStored, frozen=True, kw_only=True, tag="deregister"):
    """A broker process leaves, after it has released what it led. `moves` moves what is left."""

    incarnation: int
    moves: tuple[Move, ...] = ()


class SetDraining(ClusterStored, frozen=True, kw_only=True, tag="set-draining"):
    """From here on, brokers of this node should lead no partitions, or may lead them again."""

    node_id: int
    draining: bool


class SetLagging(ClusterStored, frozen=True, kw_only=True, tag="set-lagging"):
    """A live process found these followers of its stream lagging, and no others."""

    incarnation: int
    followers: tuple[int, ...]


class CreateTopic(ClusterStored, frozen=True, kw_only=True, tag="create-topic"):
    """A topic is created. Its id is random and never reused, so keys that contain it are unique.

    `leaders` are the incarnations that lead its first partitions, in their order. They have nothing
    to recover: no other process can have written to these partitions. `preferred` has the nodes
    that should lead a partition, by its number.
    """

    name: str
    topic_id: str
    partitions: int
    at_ms: int
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    leaders: tuple[int, ...] = ()
    preferred: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)


class AddPartitions(ClusterStored, frozen=True, tag="add-partitions"):
    """A topic now has this many partitions in total. `leaders` lead the first new ones.

    `preferred` has the nodes that should lead a new partition, by its number.
    """

    topic_id: str
    partitions: int
    leaders: tuple[int, ...] = ()
    preferred: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)


class Preference(ClusterStored, frozen=True):
    """The nodes that should lead one partition, in this order. None: placement decides."""

    topic_id: str
    partition: int
    nodes: tuple[int, ...]


class SetPreferred(ClusterStored, frozen=True, tag="set-preferred"):
    """From here on, the first of these nodes that can lead a partition should lead it."""

    preferences: tuple[Preference, ...]


class Rebalance(ClusterStored, frozen=True, tag="rebalance"):
    """Every broker should pull now what it should lead, even if brokers have just come or gone."""


class ForgetNode(ClusterStored, frozen=True, tag="forget-node"):
    """A node that has ended does not come back: nothing refers to it any more.

    Its streams are kept as long as they are needed. No effect while a process of it is live.
    """

    node_id: int


class SetConfigs(ClusterStored, frozen=True, tag="set-configs"):
    """Configs of one topic are set and removed."""

    topic_id: str
    values: dict[str, str]
    removed: tuple[str, ...] = ()


class SetBrokerConfigs(ClusterStored, frozen=True, tag="set-broker-configs"):
    """Configs of one node, or of all nodes (`ALL_NODES`), are set and removed."""

    node_id: int
    values: dict[str, str]
    removed: tuple[str, ...] = ()


class DeleteTopic(ClusterStored, frozen=True, tag="delete-topic"):
    """A topic is deleted for clients. Its objects are removed later."""

    topic_id: str


class Dropped(ClusterStored, frozen=True, tag="dropped"):
    """A broker process writes no more objects of these deleted topics."""

    incarnation: int
    topic_ids: tuple[str, ...]


class PurgeTopic(ClusterStored, frozen=True, tag="purge-topic"):
    """All objects of a deleted topic have been removed."""

    topic_id: str


class Lead(ClusterStored, frozen=True, tag="lead"):
    """Partitions without a leader get one. Moves of partitions with a leader change nothing."""

    moves: tuple[Move, ...]


class Handover(ClusterStored, frozen=True, kw_only=True):
    """One partition that its leader releases. Its records end before `end` of its stream."""

    topic_id: str
    partition: int
    epoch: int
    end: int
    end_offset: int
    successor: int


class Release(ClusterStored, frozen=True, tag="release"):
    """A live leader transfers partitions, each to a named successor under the next epoch."""

    handovers: tuple[Handover, ...]


class TieredPart(ClusterStored, frozen=True):
    """All records of one partition in the streams of epochs up to this one are in segments."""

    topic_id: str
    partition: int
    epoch: int


class Tiered(ClusterStored, frozen=True, tag="tiered"):
    """Old streams that partitions no longer need."""

    parts: tuple[TieredPart, ...]


class AbandonWal(ClusterStored, frozen=True, kw_only=True, tag="abandon-wal"):
    """The streams in this WAL store are given up: no partition needs them any more.

    Live processes that write there are ended; `moves` moves the partitions that they led.
    """

    store_id: str
    moves: tuple[Move, ...] = ()


class ProducerIds(ClusterStored, frozen=True, tag="producer-ids"):
    """A block of producer ids that one broker process assigns."""

    incarnation: int
    count: int


class Feature(ClusterStored, frozen=True, tag="feature"):
    """From here on, records of this feature level may be written."""

    level: int


Change: TypeAlias = (
    Init
    | Register
    | Expire
    | Deregister
    | SetDraining
    | SetLagging
    | CreateTopic
    | AddPartitions
    | SetPreferred
    | Rebalance
    | ForgetNode
    | SetConfigs
    | SetBrokerConfigs
    | DeleteTopic
    | Dropped
    | PurgeTopic
    | Lead
    | Release
    | Tiered
    | AbandonWal
    | ProducerIds
    | Feature
)


class ClusterRecord(ClusterStored, frozen=True):
    """The payload of one number of the cluster log."""

    change: Change


_OF_LEVEL_2 = (
    Deregister,
    SetDraining,
    SetLagging,
    SetPreferred,
    Rebalance,
    ForgetNode,
    AbandonWal,
)


def level_of(change: Change) -> int:
    """Return the feature level from which on a change may be written."""
    if isinstance(change, _OF_LEVEL_2):
        return 2
    if isinstance(change, CreateTopic | AddPartitions) and (change.leaders or change.preferred):
        return 2
    if isinstance(change, Register) and change.wal_store is not None:
        return 2
    return 1
