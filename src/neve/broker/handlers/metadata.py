"""Metadata: the brokers, the topics, and the leaders of their partitions.

A topic that is requested by name and does not exist is created, if the setting and the client allow
it. The response then contains it.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from neve import runtime
from neve.broker.access import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, authorized_operations
from neve.broker.admin.changes import Changes
from neve.broker.error_codes import NO_ERROR, admin_error, code_of
from neve.broker.errors import LeaderNotAvailableError, TimedOutError
from neve.cluster.topic_rules import TopicExistsError
from neve.errors import InvalidError, NeveError
from neve.log.segment.state_table import is_internal
from neve.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.cluster.state import Topic

_NO_ID = bytes(16)
_NO_LEADER = code_of(LeaderNotAvailableError)
# Requests have a field for topic ids since version 10, and clients may use it since this one.
_IDS_SINCE = 12
_NULL_MEANS_ALL_SINCE = 1
_TOPICS_PER_STEP = 256
"""Topics that are looked up before other clients have their turn: about 2 ms if none exists."""


class _Asked(NamedTuple):
    """A topic as a client of this version names it."""

    topic_id: bytes
    name: str | None
    version: int


async def handle(broker: Broker, request: MetadataRequest, context: Context) -> MetadataResponse:
    version = context.api_version
    cluster = authorized_operations(
        request.include_cluster_authorized_operations, CLUSTER_OPERATIONS
    )
    topics = await _topics(broker, request, version)
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(
                node_id=each.node_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in broker.cluster.live_brokers()
        ],
        cluster_id=broker.cluster.cluster_id,
        controller_id=broker.cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster,
    )


async def _topics(
    broker: Broker, request: MetadataRequest, version: int
) -> list[MetadataResponse.Topic]:
    wanted = request.topics
    bits = authorized_operations(request.include_topic_authorized_operations, TOPIC_OPERATIONS)
    if wanted is None or (version < _NULL_MEANS_ALL_SINCE and not wanted):
        return [_topic_row(broker, topic, bits) for topic in broker.topics.all()]
    may_create = broker.topics.auto_create and request.allow_auto_topic_creation
    changes = Changes(broker.changing) if may_create else None
    rows: dict[_Asked, MetadataResponse.Topic] = {}
    for at, each in enumerate(wanted, 1):
        if at % _TOPICS_PER_STEP == 0:
            await runtime.sleep(0)  # other clients have their turn
        asked = _Asked(each.topic_id, each.name, version)
        if asked in rows:
            continue
        try:
            rows[asked] = _topic_row(broker, await _found(broker, asked, changes), bits)
        except NeveError as error:
            rows[asked] = _failed_row(asked, admin_error(error)[0], bits)
    return list(rows.values())


async def _found(broker: Broker, asked: _Asked, changes: Changes | None) -> Topic:
    topic_id, name, version = asked
    if version < _IDS_SINCE and (name is None or topic_id != _NO_ID):
        raise InvalidError(f"topics are asked for by id since version {_IDS_SINCE}")
    if topic_id != _NO_ID:
        return broker.topics.find_by_id(topic_id)
    if name is None:
        raise InvalidError("a topic is named by neither name nor id")
    is_missing = broker.topics.get(name) is None
    if is_missing and changes is not None and not is_internal(name):
        await _create(broker, name, changes)
    return broker.topics.find(name)


async def _create(broker: Broker, name: str, changes: Changes) -> None:
    plan = broker.topics.plan(name)
    # If another client has just created it, its partitions may have no leader yet. While the store
    # is slow, clients still get the other topics, and ask again for this one.
    with contextlib.suppress(TopicExistsError, TimedOutError):
        await changes.make(partial(broker.topics.create, plan))
    if broker.topics.get(name) is None:
        raise LeaderNotAvailableError(f"topic {name!r} is being created: ask again")


def _topic_row(broker: Broker, topic: Topic, bits: int) -> MetadataResponse.Topic:
    partitions = [
        MetadataResponse.Partition(
            error_code=NO_ERROR if view.is_led else _NO_LEADER,
            partition_index=view.partition_index,
            leader_id=view.leader_id,
            leader_epoch=view.leader_epoch,
            replica_nodes=view.replica_nodes,
            isr_nodes=view.isr_nodes,
            offline_replicas=view.offline_replicas,
        )
        for view in broker.cluster.partitions(topic, range(len(topic.partitions)))
    ]
    return MetadataResponse.Topic(
        name=topic.name,
        topic_id=topic.id_bytes,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=bits,
    )


def _failed_row(asked: _Asked, code: int, bits: int) -> MetadataResponse.Topic:
    nameless_allowed = asked.version >= _IDS_SINCE
    return MetadataResponse.Topic(
        error_code=code,
        name=asked.name if asked.name is not None or nameless_allowed else "",
        topic_id=asked.topic_id,
        is_internal=is_internal(asked.name or ""),
        topic_authorized_operations=bits,
    )
