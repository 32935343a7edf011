"""DescribeProducers: the idempotent producers that a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import admin_error
from neve.errors import NeveError
from neve.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context


def handle(
    broker: Broker, request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    del context
    # Describe a partition once even if it is named repeatedly: a description may be large.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.Topic(
                name=name, partitions=[_row(broker, name, index) for index in indexes]
            )
            for name, indexes in wanted.items()
        ]
    )


def _row(broker: Broker, name: str, index: int) -> DescribeProducersResponse.Partition:
    try:
        leader = broker.partitions.leader(name, index)
    except NeveError as error:
        code, reason = admin_error(error)
        return DescribeProducersResponse.Partition(
            partition_index=index, error_code=code, error_message=reason
        )
    producers = [
        DescribeProducersResponse.Producer(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in leader.log.producers.entries()
    ]
    return DescribeProducersResponse.Partition(partition_index=index, active_producers=producers)
