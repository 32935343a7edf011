"""ListOffsets: the first and the last offset of partitions, and offsets by time.

A leader returns the latest offset only after it has checked that it still leads: a deposed leader
may know an older end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.admin.partitions import LeadershipCheck, check_epoch, led_partition
from neve.broker.error_codes import fetch_error
from neve.broker.handlers.duplicates import check_named_once
from neve.errors import NeveError, UnsupportedError
from neve.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context
    from neve.cluster.partition_leader import PartitionLeader
    from neve.log.partition import PartitionLog

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
# The first versions in which one may ask for these; an older client cannot mean them.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_NEVER = 2**15
NONE = -1
# Partitions that are looked at side by side; each is a task.
AT_ONCE_MAX = 500
# Those of one request that are searched by time, side by side.
SEARCHES_AT_ONCE_MAX = 32
_Topic = ListOffsetsResponse.Topic
_Partition = ListOffsetsResponse.Partition


async def handle(
    broker: Broker, request: ListOffsetsRequest, context: Context
) -> ListOffsetsResponse:
    """One offset for each partition that was asked for, many side by side.

    One that is named twice is refused, as in Kafka: a name is short, and a search by time is not.
    """
    asked = [(topic, part) for topic in request.topics for part in topic.partitions]
    times = Counter((topic.name, part.partition_index) for topic, part in asked)
    look = LeadershipCheck(broker)

    def answer(
        topic: ListOffsetsRequest.Topic, part: ListOffsetsRequest.Partition
    ) -> Coroutine[object, None, _Partition]:
        named = times[topic.name, part.partition_index]
        return _answer(broker, topic.name, part, look, times=named, version=context.api_version)

    answers: dict[int, _Partition] = {}

    async def fill_in(places: list[int]) -> None:
        found = await runtime.gather(*(answer(*asked[at]) for at in places))
        for at, row in zip(places, found, strict=True):
            answers[at] = row

    searched = [at for at, (_, part) in enumerate(asked) if _is_search(part.timestamp)]
    known = [at for at, (_, part) in enumerate(asked) if not _is_search(part.timestamp)]
    for start in range(0, len(known), AT_ONCE_MAX):
        await fill_in(known[start : start + AT_ONCE_MAX])
    for start in range(0, len(searched), SEARCHES_AT_ONCE_MAX):
        async with broker.searching:
            await fill_in(searched[start : start + SEARCHES_AT_ONCE_MAX])
    rows = (answers[at] for at in range(len(asked)))
    return ListOffsetsResponse(
        topics=[
            _Topic(name=topic.name, partitions=[next(rows) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _is_search(timestamp: int) -> bool:
    """Whether batches may have to be read and decompressed for it."""
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


async def _answer(
    broker: Broker,
    name: str,
    asked: ListOffsetsRequest.Partition,
    look: LeadershipCheck,
    *,
    times: int,
    version: int,
) -> _Partition:
    index = asked.partition_index
    try:
        check_named_once(f"partition {index} of {name!r}", times)
        leader = led_partition(broker, name, index)
        check_epoch(leader, asked.current_leader_epoch)
        if asked.timestamp < EARLIEST and version < _SINCE.get(asked.timestamp, _NEVER):
            raise UnsupportedError(
                f"version {version} of ListOffsets cannot ask for {asked.timestamp}"
            )
        return await _found(broker, leader, index, asked.timestamp, look)
    except NeveError as error:
        return _refused(index, fetch_error(error))


async def _found(
    broker: Broker, leader: PartitionLeader, index: int, timestamp: int, look: LeadershipCheck
) -> _Partition:
    log = leader.log
    if timestamp == LATEST:
        await look.check(leader)
        return _offset(log, index, log.high_watermark)
    if timestamp == EARLIEST:
        return _offset(log, index, log.start_offset)
    if timestamp == EARLIEST_LOCAL:
        return _offset(log, index, max(log.start_offset, log.tiered_offset))
    if timestamp == LATEST_TIERED:
        return _offset(log, index, log.tiered_offset - 1)
    if timestamp == MAX_TIMESTAMP:
        found = await broker.reader.max_timestamp(log)
        await look.check(leader)
    else:
        found = await broker.reader.offset_for_time(log, timestamp)
        # The first record of a time stays the first. That there is none yet may have changed since
        # another process took over, and clients then go on at the end.
        if found is None:
            await look.check(leader)
    return _offset(log, index, NONE) if found is None else _offset(log, index, *found)


def _offset(log: PartitionLog, index: int, offset: int, timestamp: int = NONE) -> _Partition:
    epoch = NONE
    if offset != NONE:
        epoch = next(
            (start.epoch for start in reversed(log.epochs) if start.start_offset <= offset), NONE
        )
    return _Partition(partition_index=index, offset=offset, timestamp=timestamp, leader_epoch=epoch)


def _refused(index: int, code: int) -> _Partition:
    return _Partition(partition_index=index, error_code=code, offset=NONE, timestamp=NONE)
