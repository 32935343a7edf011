"""OffsetForLeaderEpoch: the end of an epoch. Consumers detect from it that they read too far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.admin.partitions import LeadershipCheck, check_epoch
from neve.broker.error_codes import fetch_error
from neve.errors import NeveError
from neve.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


async def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: Context
) -> OffsetForLeaderEpochResponse:
    del context
    check = LeadershipCheck(broker.still_leading)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[
                    await _row(broker, topic.topic, asked, check) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _row(
    broker: Broker, name: str, asked: OffsetForLeaderEpochRequest.Partition, check: LeadershipCheck
) -> OffsetForLeaderEpochResponse.Partition:
    try:
        leader = broker.partitions.leader(name, asked.partition)
        check_epoch(leader, asked.current_leader_epoch)
        # The end of an earlier epoch is final. The current one is open, unless another process has
        # taken over.
        if asked.leader_epoch >= leader.log.epoch:
            await check.check(leader)
    except NeveError as error:
        return OffsetForLeaderEpochResponse.Partition(
            error_code=fetch_error(error), partition=asked.partition
        )
    epoch, end_offset = leader.log.end_of_epoch(asked.leader_epoch)
    return OffsetForLeaderEpochResponse.Partition(
        partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
