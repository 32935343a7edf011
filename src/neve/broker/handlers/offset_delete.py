"""OffsetDelete: delete the committed offsets of a group for some partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import group_code
from neve.coordinator.group_errors import GroupError
from neve.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(broker: Broker, request: OffsetDeleteRequest, _: Context) -> OffsetDeleteResponse:
    wanted = [
        (topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
        if broker.topics.has_partition(topic.name, each.partition_index)
    ]
    error, errors = await broker.groups.delete_offsets(request.group_id, wanted)
    if error:
        return OffsetDeleteResponse(error_code=group_code(error))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.Partition(
                        partition_index=each.partition_index,
                        error_code=group_code(
                            errors.get(
                                (topic.name, each.partition_index), GroupError.UNKNOWN_PARTITION
                            )
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
