"""OffsetForLeaderEpoch: where an epoch ended, so that a consumer knows whether it read too far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.broker.error_codes import RefusedError, fetch_error
from neve.broker.handlers.led_partitions import led_log
from neve.errors import NeveError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = OFFSET_FOR_LEADER_EPOCH.Response
_UNKNOWN = -1


def handle(broker: Broker, request: Any, context: Context) -> Any:
    del context
    return _Response(
        topics=[
            _Response.Topic(
                topic=topic.topic,
                partitions=[_row(broker, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _row(broker: Broker, name: str, asked: Any) -> Any:
    try:
        log = led_log(broker, name, asked.partition)
        check_epoch(asked.current_leader_epoch, log.epoch)
    except NeveError as error:
        return _Response.Partition(error_code=fetch_error(error), partition=asked.partition)
    epoch, end_offset = log.end_of_epoch(asked.leader_epoch)
    return _Response.Partition(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def check_epoch(of_client: int, of_leader: int) -> None:
    """Refuse a client whose view of the leadership is older than ours, or newer."""
    if of_client in (_UNKNOWN, of_leader):
        return
    if of_client < of_leader:
        raise RefusedError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {of_client} is over, it is {of_leader} now: ask for metadata again",
        )
    raise RefusedError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"leader epoch {of_client} is not known here yet, only {of_leader}: try again",
    )
