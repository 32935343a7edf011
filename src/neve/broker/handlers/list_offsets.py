"""ListOffsets: the first and the last offset of partitions, and offsets by time.

A leader returns the latest offset only after it has checked that it still leads: a deposed leader
may know an older end. A follower answers only tools that ask for it (replica id -2), as in Kafka,
and up to what it has seen committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.admin.duplicates import check_named_once
from neve.broker.admin.offsets import NONE, FoundOffset, OffsetSpec, is_search
from neve.broker.admin.partitions import LeadershipCheck, check_epoch, check_log_epoch
from neve.broker.error_codes import fetch_error
from neve.broker.errors import NotLeaderError
from neve.errors import NeveError, UnsupportedError
from neve.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

# The first versions in which a client can ask for these.
_SINCE: dict[int, int] = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
}
_NEVER = 2**15
# The replica id of a client that asks a broker whether or not it leads.
ANY_REPLICA = -2
# Partitions of one request that are handled in parallel, each by a task.
AT_ONCE_MAX = 500
# Partitions of one request that are searched by time in parallel.
SEARCHES_AT_ONCE_MAX = 32
_Topic = ListOffsetsResponse.Topic
_Partition = ListOffsetsResponse.Partition


async def handle(
    broker: Broker, request: ListOffsetsRequest, context: Context
) -> ListOffsetsResponse:
    """Find one offset for each partition, many in parallel.

    As in Kafka, a partition that is named twice is refused: a small request could otherwise cause
    many expensive searches.
    """
    requested = [(topic, part) for topic in request.topics for part in topic.partitions]
    times = Counter((topic.name, part.partition_index) for topic, part in requested)
    check = LeadershipCheck(broker.still_leading)

    def find(
        topic: ListOffsetsRequest.Topic, part: ListOffsetsRequest.Partition
    ) -> Coroutine[object, None, _Partition]:
        named = times[topic.name, part.partition_index]
        copies = request.replica_id == ANY_REPLICA
        version = context.api_version
        return _find(broker, topic.name, part, check, times=named, version=version, copies=copies)

    found_rows: dict[int, _Partition] = {}

    async def fill_in(places: list[int]) -> None:
        found = await runtime.gather(*(find(*requested[at]) for at in places))
        for at, row in zip(places, found, strict=True):
            found_rows[at] = row

    searched = [at for at, (_, part) in enumerate(requested) if is_search(part.timestamp)]
    known = [at for at, (_, part) in enumerate(requested) if not is_search(part.timestamp)]
    for start in range(0, len(known), AT_ONCE_MAX):
        await fill_in(known[start : start + AT_ONCE_MAX])
    for start in range(0, len(searched), SEARCHES_AT_ONCE_MAX):
        async with broker.searching:
            await fill_in(searched[start : start + SEARCHES_AT_ONCE_MAX])
    rows = (found_rows[at] for at in range(len(requested)))
    return ListOffsetsResponse(
        topics=[
            _Topic(name=topic.name, partitions=[next(rows) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


async def _find(
    broker: Broker,
    name: str,
    asked: ListOffsetsRequest.Partition,
    check: LeadershipCheck,
    *,
    times: int,
    version: int,
    copies: bool,
) -> _Partition:
    index, spec = asked.partition_index, asked.timestamp
    try:
        check_named_once(f"partition {index} of {name!r}", times)
        if spec < OffsetSpec.EARLIEST and version < _SINCE.get(spec, _NEVER):
            raise UnsupportedError(f"version {version} of ListOffsets cannot ask for {spec}")
        found = await _found(broker, name, asked, check, copies=copies)
    except NeveError as error:
        return _Partition(
            partition_index=index, error_code=fetch_error(error), offset=NONE, timestamp=NONE
        )
    return _Partition(partition_index=index, **found._asdict())


async def _found(
    broker: Broker,
    name: str,
    asked: ListOffsetsRequest.Partition,
    check: LeadershipCheck,
    *,
    copies: bool,
) -> FoundOffset:
    index, spec = asked.partition_index, asked.timestamp
    try:
        leader = broker.partitions.leader(name, index)
    except NotLeaderError:
        if not copies:
            raise
        log = await broker.partitions.copy(name, index)
        check_log_epoch(log, asked.current_leader_epoch)
        return await broker.offsets.find_in_copy(log, spec)
    check_epoch(leader, asked.current_leader_epoch)
    return await broker.offsets.find(leader, spec, check)
