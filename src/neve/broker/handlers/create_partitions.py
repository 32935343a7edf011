"""CreatePartitions: topics grow to a total, each decided by itself."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from neve.broker.error_codes import admin_error
from neve.broker.errors import AssignmentError
from neve.broker.handlers.assignments import check_brokers_named
from neve.broker.handlers.changes import Changes
from neve.broker.handlers.topic_names import (
    check_named_once,
    check_not_internal,
    each_once,
    existing_topic,
)
from neve.cluster.topic_rules import PartitionCountError, check_partition_count
from neve.errors import NeveError
from neve.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(
    broker: Broker, request: CreatePartitionsRequest, context: Context
) -> CreatePartitionsResponse:
    del context
    changes = None if request.validate_only else Changes(broker, request.timeout_ms)
    rows = [
        await _row(broker, topic, times, changes)
        for topic, times in each_once(request.topics, attrgetter("name"))
    ]
    return CreatePartitionsResponse(results=rows)


async def _row(
    broker: Broker, asked: CreatePartitionsRequest.Topic, times: int, changes: Changes | None
) -> CreatePartitionsResponse.Topic:
    try:
        check_named_once(f"topic {asked.name!r}", times)
        _check(broker, asked)
        if changes is not None:
            await changes.make(partial(broker.node.add_partitions, asked.name, asked.count))
    except NeveError as error:
        code, reason = admin_error(error)
        return CreatePartitionsResponse.Topic(
            name=asked.name, error_code=code, error_message=reason
        )
    return CreatePartitionsResponse.Topic(name=asked.name)


def _check(broker: Broker, asked: CreatePartitionsRequest.Topic) -> None:
    topic = existing_topic(broker, asked.name)
    check_not_internal(asked.name, "changed")
    present = len(topic.partitions)
    if asked.count <= present:
        raise PartitionCountError(
            f"topic {asked.name!r} has {present} partitions; a total of {asked.count} is not more"
        )
    limits = broker.settings.cluster
    check_partition_count(broker.node.cluster.state, limits, asked.name, asked.count, present)
    if asked.assignments is None:
        return
    if len(asked.assignments) != asked.count - present:
        raise AssignmentError(
            f"{len(asked.assignments)} assignments are given for "
            f"{asked.count - present} new partitions of {asked.name!r}"
        )
    check_brokers_named(asked.name, asked.assignments)
