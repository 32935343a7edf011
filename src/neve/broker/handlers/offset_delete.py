"""OffsetDelete: a group forgets how far it has read of some partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.protocol.codes import ErrorCode
from neve.protocol.messages.offset_delete import OFFSET_DELETE

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = OFFSET_DELETE.Response


async def handle(broker: Broker, request: Any, _: Context) -> Any:
    wanted = [
        (topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
        if _is_there(broker, topic.name, each.partition_index)
    ]
    error, errors = await broker.groups.delete_offsets(request.group_id, wanted)
    if error:
        return _Response(error_code=error)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Response(
        topics=[
            _Response.Topic(
                name=topic.name,
                partitions=[
                    _Response.Partition(
                        partition_index=each.partition_index,
                        error_code=errors.get((topic.name, each.partition_index), unknown),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _is_there(broker: Broker, name: str, partition: int) -> bool:
    topic = broker.node.topic(name)
    return topic is not None and 0 <= partition < len(topic.partitions)
