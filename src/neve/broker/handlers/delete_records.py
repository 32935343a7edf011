"""DeleteRecords: a partition's log starts at a later offset, and what lay before it goes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from neve.broker.error_codes import admin_error
from neve.broker.errors import DeletedOffsetError, InternalTopicError
from neve.broker.handlers.changes import Changes
from neve.broker.handlers.leadership_look import LeadershipLook
from neve.broker.handlers.led_partitions import led_partition
from neve.errors import NeveError
from neve.log.segment.state_table import is_internal
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
    changes = Changes(broker, request.timeout_ms)
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
        low_watermark = await _deleted(broker, name, number, asked.offset, changes)
    except NeveError as error:
        code, _ = admin_error(error)
        return DeleteRecordsResponse.Partition(
            partition_index=number, low_watermark=_NO_LOW_WATERMARK, error_code=code
        )
    return DeleteRecordsResponse.Partition(partition_index=number, low_watermark=low_watermark)


async def _deleted(broker: Broker, name: str, number: int, offset: int, changes: Changes) -> int:
    """Delete everything before `offset`; where the log starts then."""
    if is_internal(name):
        raise InternalTopicError(f"records of {name} are the broker's own")
    leader = led_partition(broker, name, number)
    # Where the log ends decides what is deleted.
    await changes.make(partial(LeadershipLook(broker).check, leader))
    end = leader.log.high_watermark
    before = end if offset == _TO_THE_HIGH_WATERMARK else offset
    if not 0 <= before <= end:
        raise DeletedOffsetError(f"{leader.name} has no offset {before}: it ends at {end}")
    await changes.make(partial(leader.move_start, before))
    return leader.log.start_offset
