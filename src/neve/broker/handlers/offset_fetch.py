"""OffsetFetch: the committed offsets of groups, -1 for a partition without one.

Up to version 7 a request names one group, then many; up to version 9 it names topics by name, then
by id. One leadership check, begun after the request arrived, is valid for all groups of a request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from neve.broker.admin.partitions import LeadershipCheck
from neve.broker.error_codes import NO_ERROR, code_of, offset_fetch_code
from neve.broker.errors import UnknownTopicIdError
from neve.coordinator.offset_requests import FetchedOffsets
from neve.coordinator.offsets import UNCOMMITTED, CommittedOffset, TopicPartition
from neve.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_GROUP_ERROR_SINCE = 2
_MANY_SINCE = 8
_TOPIC_IDS_SINCE = 10
_UNKNOWN_TOPIC_ID = code_of(UnknownTopicIdError)
_NO_ID = bytes(16)
_Row = TypeVar("_Row", OffsetFetchResponse.Partition, OffsetFetchResponse.GroupPartition)


class _Asked(NamedTuple):
    """A topic of a request. `name` is None if the request names it by an unknown id."""

    name: str | None
    topic_id: bytes
    partitions: Sequence[int]


async def handle(
    broker: Broker, request: OffsetFetchRequest, context: Context
) -> OffsetFetchResponse:
    check = LeadershipCheck(broker.still_leading)
    version = context.api_version
    if version < _MANY_SINCE:
        topics = None
        if request.topics is not None:
            topics = [_Asked(each.name, _NO_ID, each.partition_indexes) for each in request.topics]
        found = await _fetch(broker, request.group_id, topics, check)
        return _single(topics, found, version)
    groups = []
    listed_whole: set[str] = set()
    for each in request.groups:
        if each.topics is None:
            if each.group_id in listed_whole:
                continue  # all offsets of a group may be large, so they are returned only once
            listed_whole.add(each.group_id)
        topics = _group_topics(broker, each.topics, version)
        found = await _fetch(broker, each.group_id, topics, check)
        groups.append(_group(broker, each.group_id, topics, found))
    return OffsetFetchResponse(groups=groups)


def _group_topics(
    broker: Broker, topics: list[OffsetFetchRequest.GroupTopic] | None, version: int
) -> list[_Asked] | None:
    """Return the topics that are requested for a group, or None for all with an offset."""
    if topics is None:
        return None
    if version < _TOPIC_IDS_SINCE:
        return [_Asked(each.name, _NO_ID, each.partition_indexes) for each in topics]
    asked = []
    for each in topics:
        topic = broker.topics.get_by_id(each.topic_id)
        name = None if topic is None else topic.name
        asked.append(_Asked(name, each.topic_id, each.partition_indexes))
    return asked


async def _fetch(
    broker: Broker, group_id: str, topics: list[_Asked] | None, check: LeadershipCheck
) -> FetchedOffsets:
    wanted: list[TopicPartition] | None = None
    if topics is not None:
        named = [each for each in topics if each.name is not None]
        wanted = [(each.name or "", number) for each in named for number in each.partitions]
    return await broker.groups.fetch_offsets(group_id, wanted, check)


def _listed(topics: list[_Asked] | None, found: FetchedOffsets) -> list[_Asked]:
    if topics is not None:
        return topics
    numbers: dict[str, list[int]] = {}
    for name, number in found.offsets:
        numbers.setdefault(name, []).append(number)
    return [_Asked(name, _NO_ID, partitions) for name, partitions in numbers.items()]


def _row(made: type[_Row], number: int, value: CommittedOffset, code: int) -> _Row:
    return made(
        partition_index=number,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=code,
    )


def _single(
    topics: list[_Asked] | None, found: FetchedOffsets, version: int
) -> OffsetFetchResponse:
    code = offset_fetch_code(found.error)
    if found.error and version >= _GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=code)
    # Earlier versions have no field for the group's error, so every partition has it.
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.Topic(
                name=each.name or "",
                partitions=[
                    _row(
                        OffsetFetchResponse.Partition,
                        number,
                        found.offsets.get((each.name or "", number), UNCOMMITTED),
                        code,
                    )
                    for number in each.partitions
                ],
            )
            for each in _listed(topics, found)
        ]
    )


def _group(
    broker: Broker, group_id: str, topics: list[_Asked] | None, found: FetchedOffsets
) -> OffsetFetchResponse.Group:
    if found.error:
        code = offset_fetch_code(found.error)
        return OffsetFetchResponse.Group(group_id=group_id, error_code=code)
    rows = []
    for each in _listed(topics, found):
        code = NO_ERROR if each.name is not None else _UNKNOWN_TOPIC_ID
        topic = broker.topics.get(each.name or "")
        known_id = each.topic_id if topic is None else topic.id_bytes
        partitions = [
            _row(
                OffsetFetchResponse.GroupPartition,
                number,
                found.offsets.get((each.name or "", number), UNCOMMITTED),
                code,
            )
            for number in each.partitions
        ]
        rows.append(
            OffsetFetchResponse.GroupTopic(
                name=each.name or "", topic_id=known_id, partitions=partitions
            )
        )
    return OffsetFetchResponse.Group(group_id=group_id, topics=rows)
