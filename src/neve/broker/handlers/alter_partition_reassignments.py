"""AlterPartitionReassignments: name the brokers that should lead partitions.

The store replicates, so an assignment may name any number of brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.admin.duplicates import check_named_once
from neve.broker.error_codes import NO_ERROR, admin_error
from neve.errors import NeveError
from neve.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from neve.broker.admin.reassignments import NamedPartition
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_Response = AlterPartitionReassignmentsResponse


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: Context
) -> AlterPartitionReassignmentsResponse:
    del context
    named = [
        (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
    ]
    times = Counter(named)
    wanted: dict[NamedPartition, Sequence[int] | None] = {
        (topic.name, row.partition_index): row.replicas
        for topic in request.topics
        for row in topic.partitions
        if times[topic.name, row.partition_index] == 1
    }
    changes = Changes(broker.changing, request.timeout_ms)
    allows = request.allow_replication_factor_change
    try:
        failures = await changes.make(partial(broker.reassignments.alter, wanted))
    except NeveError as error:
        code, reason = admin_error(error)
        return _Response(
            error_code=code, error_message=reason, allow_replication_factor_change=allows
        )
    for (name, number), count in times.items():
        try:
            check_named_once(f"partition {number} of topic {name!r}", count)
        except NeveError as error:
            failures[name, number] = error
    return _Response(
        error_message=None,
        allow_replication_factor_change=allows,
        responses=_rows(times, failures),
    )


def _rows(
    named: Mapping[NamedPartition, int], failures: Mapping[NamedPartition, NeveError]
) -> list[_Response.Topic]:
    topics: dict[str, list[_Response.Partition]] = {}
    for name, number in named:
        code, reason = NO_ERROR, None
        if (name, number) in failures:
            code, reason = admin_error(failures[name, number])
        row = _Response.Partition(partition_index=number, error_code=code, error_message=reason)
        topics.setdefault(name, []).append(row)
    return [_Response.Topic(name=name, partitions=rows) for name, rows in topics.items()]
