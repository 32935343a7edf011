"""CreatePartitions: add partitions to topics, up to a total. Each topic is decided separately."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.admin.duplicates import check_named_once, each_once
from neve.broker.error_codes import admin_error
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
    changes = None if request.validate_only else Changes(broker.changing, request.timeout_ms)
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
        rows = asked.assignments
        assigned = None if rows is None else [each.broker_ids for each in rows]
        preferred = broker.topics.plan_growth(asked.name, asked.count, assigned)
        if changes is not None:
            await changes.make(partial(broker.topics.grow, asked.name, asked.count, preferred))
    except NeveError as error:
        code, reason = admin_error(error)
        return CreatePartitionsResponse.Topic(
            name=asked.name, error_code=code, error_message=reason
        )
    return CreatePartitionsResponse.Topic(name=asked.name)
