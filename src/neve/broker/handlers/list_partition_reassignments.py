"""ListPartitionReassignments: the partitions that are not yet led where they should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    del context
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.name, set()).update(asked.partition_indexes)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            ListPartitionReassignmentsResponse.Topic(
                name=name,
                partitions=[
                    ListPartitionReassignmentsResponse.Partition(**row._asdict()) for row in rows
                ],
            )
            for name, rows in broker.reassignments.in_progress(wanted).items()
        ],
    )
