"""DescribeTopicPartitions: topics in pages of a bounded number of partitions.

Topics are sorted by name. The cursor names the first partition of the next page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.access import TOPIC_OPERATIONS
from neve.broker.error_codes import NO_ERROR, admin_error, code_of
from neve.broker.errors import LeaderNotAvailableError
from neve.errors import InvalidError, NeveError
from neve.log.segment.state_table import is_internal
from neve.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.cluster.state import Topic

_NO_LEADER = code_of(LeaderNotAvailableError)
PARTITIONS_MAX = 2_000
"""The most partitions of one response. A client can ask for fewer."""


def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    del context
    names = sorted({topic.name for topic in request.topics})
    if not names:
        names = [topic.name for topic in broker.topics.all()]
    first_name, first_number = "", 0
    if request.cursor is not None:
        first_name, first_number = request.cursor.topic_name, request.cursor.partition_index
        if first_number < 0:
            return DescribeTopicPartitionsResponse(
                topics=[_failed(name, code_of(InvalidError)) for name in names]
            )
        names = [name for name in names if name >= first_name]
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    rows: list[DescribeTopicPartitionsResponse.Topic] = []
    for name in names:
        if not left:
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=_cursor(name, 0))
        start = first_number if name == first_name else 0
        try:
            topic = broker.topics.find(name)
        except NeveError as error:
            rows.append(_failed(name, admin_error(error)[0]))
            continue
        end = min(len(topic.partitions), start + left)
        rows.append(_row(broker, topic, start, end))
        left -= max(0, end - start)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=_cursor(name, end))
    return DescribeTopicPartitionsResponse(topics=rows)


def _cursor(name: str, number: int) -> DescribeTopicPartitionsResponse.Cursor:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=number)


def _failed(name: str, code: int) -> DescribeTopicPartitionsResponse.Topic:
    return DescribeTopicPartitionsResponse.Topic(
        error_code=code, name=name, is_internal=is_internal(name)
    )


def _row(
    broker: Broker, topic: Topic, start: int, end: int
) -> DescribeTopicPartitionsResponse.Topic:
    partitions = [
        DescribeTopicPartitionsResponse.Partition(
            error_code=NO_ERROR if view.is_led else _NO_LEADER,
            partition_index=view.partition_index,
            leader_id=view.leader_id,
            leader_epoch=view.leader_epoch,
            replica_nodes=view.replica_nodes,
            isr_nodes=view.isr_nodes,
            offline_replicas=view.offline_replicas,
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
        for view in broker.cluster.partitions(topic, range(start, end))
    ]
    return DescribeTopicPartitionsResponse.Topic(
        name=topic.name,
        topic_id=topic.id_bytes,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
