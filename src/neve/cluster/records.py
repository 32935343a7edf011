"""The records of the cluster log: one change per number.

A process stops at a kind of record that it does not know, because it cannot know what it would
miss. The feature level prevents new kinds from being written before every broker knows them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from neve.log.envelope import Stored

FEATURE_LEVEL = 1
ALL_NODES = -1


class Init(Stored, frozen=True, tag="init"):
    """The first record: the bucket becomes a cluster."""

    cluster_id: str
    feature_level: int
    at_ms: int


class Move(Stored, frozen=True, kw_only=True):
    """One partition under a new leader. Its records begin at `start` of the leader's stream."""

    topic_id: str
    partition: int
    epoch: int
    incarnation: int
    start: int = 0


class Register(Stored, frozen=True, kw_only=True, tag="register"):
    """A broker process starts. The record's number is its incarnation and its stream's name.

    It ends any earlier incarnation of the same node; `moves` moves the partitions of that one to
    the new one. `session` is random, so that the process recognises its own registration.
    `inflight` bounds how far ahead the stream may write: a process that seals it needs this.
    """

    node_id: int
    session: str
    inflight: int
    at_ms: int
    host: str = ""
    port: int = 0
    rack: str = ""
    moves: tuple[Move, ...] = ()


class Expire(Stored, frozen=True, kw_only=True, tag="expire"):
    """A broker process is declared dead. `moves` moves each partition that it led to a live leader.

    Its stream must be sealed and read before its partitions are served again.
    """

    incarnation: int
    moves: tuple[Move, ...] = ()


class CreateTopic(Stored, frozen=True, kw_only=True, tag="create-topic"):
    """A topic is created. Its id is random and never reused, so keys that contain it are unique."""

    name: str
    topic_id: str
    partitions: int
    at_ms: int
    configs: dict[str, str] = msgspec.field(default_factory=dict)


class AddPartitions(Stored, frozen=True, tag="add-partitions"):
    """A topic now has this many partitions in total."""

    topic_id: str
    partitions: int


class SetConfigs(Stored, frozen=True, tag="set-configs"):
    """Configs of one topic are set and removed."""

    topic_id: str
    values: dict[str, str]
    removed: tuple[str, ...] = ()


class SetBrokerConfigs(Stored, frozen=True, tag="set-broker-configs"):
    """Configs of one node, or of all nodes (`ALL_NODES`), are set and removed."""

    node_id: int
    values: dict[str, str]
    removed: tuple[str, ...] = ()


class DeleteTopic(Stored, frozen=True, tag="delete-topic"):
    """A topic is deleted for clients. Its objects are removed later."""

    topic_id: str


class Dropped(Stored, frozen=True, tag="dropped"):
    """A broker process writes no more objects of these deleted topics."""

    incarnation: int
    topic_ids: tuple[str, ...]


class PurgeTopic(Stored, frozen=True, tag="purge-topic"):
    """All objects of a deleted topic have been removed."""

    topic_id: str


class Lead(Stored, frozen=True, tag="lead"):
    """Partitions without a leader get one. Moves of partitions with a leader change nothing."""

    moves: tuple[Move, ...]


class Handover(Stored, frozen=True, kw_only=True):
    """One partition that its leader releases. Its records end before `end` of its stream."""

    topic_id: str
    partition: int
    epoch: int
    end: int
    end_offset: int
    successor: int


class Release(Stored, frozen=True, tag="release"):
    """A live leader transfers partitions, each to a named successor under the next epoch."""

    handovers: tuple[Handover, ...]


class TieredPart(Stored, frozen=True):
    """All records of one partition in the streams of epochs up to this one are in segments."""

    topic_id: str
    partition: int
    epoch: int


class Tiered(Stored, frozen=True, tag="tiered"):
    """Old streams that partitions no longer need."""

    parts: tuple[TieredPart, ...]


class ProducerIds(Stored, frozen=True, tag="producer-ids"):
    """A block of producer ids that one broker process assigns."""

    incarnation: int
    count: int


class Feature(Stored, frozen=True, tag="feature"):
    """From here on, records of this feature level may be written."""

    level: int


Change: TypeAlias = (
    Init
    | Register
    | Expire
    | CreateTopic
    | AddPartitions
    | SetConfigs
    | SetBrokerConfigs
    | DeleteTopic
    | Dropped
    | PurgeTopic
    | Lead
    | Release
    | Tiered
    | ProducerIds
    | Feature
)


class ClusterRecord(Stored, frozen=True):
    """The payload of one number of the cluster log."""

    change: Change
