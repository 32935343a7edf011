"""DescribeProducers: the idempotent producers that a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.broker.error_codes import admin_error
from neve.broker.handlers.led_partitions import led_log
from neve.errors import NeveError
from neve.protocol.messages.describe_producers import DESCRIBE_PRODUCERS

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.router import Context

_Response = DESCRIBE_PRODUCERS.Response


def handle(broker: Broker, request: Any, context: Context) -> Any:
    del context
    # Once each: a number is short, and what is told of its partition may not be.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return _Response(
        topics=[
            _Response.Topic(name=name, partitions=[_row(broker, name, index) for index in indexes])
            for name, indexes in wanted.items()
        ]
    )


def _row(broker: Broker, name: str, index: int) -> Any:
    try:
        log = led_log(broker, name, index)
    except NeveError as error:
        code, reason = admin_error(error)
        return _Response.Partition(partition_index=index, error_code=code, error_message=reason)
    producers = [
        _Response.Producer(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in log.producers.entries()
    ]
    return _Response.Partition(partition_index=index, active_producers=producers)
