"""DeleteRecords: delete the records of a partition before an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.changes import Changes
from neve.broker.error_codes import admin_error
from neve.errors import NeveError
from neve.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_TO_THE_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse:
    del context
    changes = Changes(broker.changing, request.timeout_ms)
    topics = []
    for topic in request.topics:
        rows = [await _row(broker, topic.name, asked, changes) for asked in topic.partitions]
        topics.append(DeleteRecordsResponse.Topic(name=topic.name, partitions=rows))
    return DeleteRecordsResponse(topics=topics)


async def _row(
    broker: Broker, name: str, asked: DeleteRecordsRequest.Partition, changes: Changes
) -> DeleteRecordsResponse.Partition:
    number = asked.partition_index
    try:
        before = None if asked.offset == _TO_THE_HIGH_WATERMARK else asked.offset
        low_watermark = await broker.partitions.delete_records(name, number, before, changes)
    except NeveError as error:
        code, _ = admin_error(error)
        return DeleteRecordsResponse.Partition(
            partition_index=number, low_watermark=_NO_LOW_WATERMARK, error_code=code
        )
    return DeleteRecordsResponse.Partition(partition_index=number, low_watermark=low_watermark)
