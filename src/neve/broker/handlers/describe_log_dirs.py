"""DescribeLogDirs: the sizes of partitions. The bucket is the only log directory.

A broker describes the partitions that it leads, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import NO_ERROR, admin_error
from neve.errors import NeveError
from neve.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.cluster.state import Topic


async def handle(
    broker: Broker, request: DescribeLogDirsRequest, context: Context
) -> DescribeLogDirsResponse:
    del context
    rows, code = [], NO_ERROR
    try:
        for topic, numbers in _wanted(broker, request.topics):
            partitions = [row for number in numbers for row in await _rows(broker, topic, number)]
            if partitions:
                rows.append(DescribeLogDirsResponse.Topic(name=topic.name, partitions=partitions))
    except NeveError as error:
        rows, (code, _) = [], admin_error(error)
    folder = DescribeLogDirsResponse.Folder(error_code=code, log_dir=broker.store_url, topics=rows)
    return DescribeLogDirsResponse(results=[folder])


def _wanted(
    broker: Broker, asked: list[DescribeLogDirsRequest.Topic] | None
) -> list[tuple[Topic, list[int]]]:
    if asked is None:
        return [(topic, list(range(len(topic.partitions)))) for topic in broker.topics.all()]
    numbers: dict[str, set[int]] = {}
    for each in asked:
        numbers.setdefault(each.topic, set()).update(each.partitions)
    found = [(broker.topics.get(name), sorted(wanted)) for name, wanted in numbers.items()]
    return [(topic, wanted) for topic, wanted in found if topic is not None]


async def _rows(
    broker: Broker, topic: Topic, number: int
) -> list[DescribeLogDirsResponse.Partition]:
    """Return the row of a partition, or none if another broker leads it."""
    size = await broker.partitions.size_bytes(topic, number)
    if size is None:
        return []
    return [DescribeLogDirsResponse.Partition(partition_index=number, partition_size=size)]
