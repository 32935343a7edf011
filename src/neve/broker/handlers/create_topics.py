"""CreateTopics: each topic is checked and created separately.

The store replicates: any replication factor is accepted, and returned as 1. The brokers of a manual
assignment are those that should lead a partition, in their order.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.admin.duplicates import check_named_once, each_once
from neve.broker.admin.topics import NewTopic
from neve.broker.error_codes import admin_error
from neve.broker.errors import ReplicationFactorError
from neve.cluster.topic_rules import AssignmentError
from neve.errors import InvalidError, NeveError
from neve.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_BROKER_DEFAULT = -1
_REPLICATION_FACTOR = 1
_NO_ID = bytes(16)


async def handle(
    broker: Broker, request: CreateTopicsRequest, context: Context
) -> CreateTopicsResponse:
    del context
    changes = None if request.validate_only else Changes(broker.changing, request.timeout_ms)
    rows = [
        await _row(broker, topic, times, changes)
        for topic, times in each_once(request.topics, attrgetter("name"))
    ]
    return CreateTopicsResponse(topics=rows)


async def _row(
    broker: Broker, asked: CreateTopicsRequest.Topic, times: int, changes: Changes | None
) -> CreateTopicsResponse.Topic:
    topic_id = _NO_ID
    try:
        check_named_once(f"topic {asked.name!r}", times)
        plan = _planned(broker, asked)
        if changes is not None:
            created = await changes.make(partial(broker.topics.create, plan))
            topic_id = created.id_bytes
    except NeveError as error:
        code, reason = admin_error(error)
        return CreateTopicsResponse.Topic(name=asked.name, error_code=code, error_message=reason)
    configs = [
        CreateTopicsResponse.Config(
            name=each.name, value=each.value, read_only=each.read_only, config_source=each.source
        )
        for each in broker.configs.topic_entries(plan.configs)
    ]
    return CreateTopicsResponse.Topic(
        name=plan.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=plan.partitions,
        replication_factor=_REPLICATION_FACTOR,
        configs=configs,
    )


def _planned(broker: Broker, asked: CreateTopicsRequest.Topic) -> NewTopic:
    broker.topics.check_new_name(asked.name)
    configs = {config.name: config.value for config in asked.configs}
    if not asked.assignments:
        return broker.topics.plan(asked.name, _counted(asked), configs)
    preferred = _assigned(asked)
    return broker.topics.plan(asked.name, len(preferred), configs, preferred)


def _counted(asked: CreateTopicsRequest.Topic) -> int | None:
    if asked.replication_factor != _BROKER_DEFAULT and asked.replication_factor < 1:
        raise ReplicationFactorError(
            f"the replication factor of topic {asked.name!r} is {asked.replication_factor}: it "
            "must be an integer >= 1, or -1 for the default"
        )
    return None if asked.num_partitions == _BROKER_DEFAULT else asked.num_partitions


def _assigned(asked: CreateTopicsRequest.Topic) -> dict[int, list[int]]:
    """Return the brokers of a manual assignment, by partition."""
    if {asked.num_partitions, asked.replication_factor} != {_BROKER_DEFAULT}:
        raise InvalidError(
            f"topic {asked.name!r} has a manual assignment: leave partitions and replication "
            "factor at -1"
        )
    count = len(asked.assignments)
    if sorted(each.partition_index for each in asked.assignments) != list(range(count)):
        raise AssignmentError(
            f"the assignments of topic {asked.name!r} are not for partitions 0 to {count - 1}"
        )
    return {each.partition_index: each.broker_ids for each in asked.assignments}
