"""OffsetCommit: commit offsets of a group. The response follows when they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.error_codes import code_of, group_code
from neve.broker.errors import UnknownTopicIdError
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import Identity
from neve.coordinator.offset_requests import CommitRequest, OffsetToCommit
from neve.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_TOPIC_IDS_SINCE = 10
_UNKNOWN_TOPIC_ID = code_of(UnknownTopicIdError)


async def handle(
    broker: Broker, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    names = [_name(broker, each.topic_id) if by_id else each.name for each in request.topics]
    errors = await broker.groups.commit_offsets(
        CommitRequest(
            group_id=request.group_id,
            identity=Identity(request.member_id, request.group_instance_id),
            generation=request.generation_id_or_member_epoch,
            offsets=[
                OffsetToCommit(
                    name or "",  # unknown ids too: only the coordinator may say that they are
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                )
                for name, topic in zip(names, request.topics, strict=True)
                for each in topic.partitions
            ],
        )
    )
    if GroupError.OFFSETS_FULL in errors.values():
        bound = broker.settings.groups.offsets_memory_bytes
        broker.limited_log.warning(
            context.client.host,
            "offsets.memory.bytes",
            f"an offset of group {request.group_id!r} was refused: the committed offsets of all "
            f"groups take up {bound} bytes (offsets.memory.bytes): raise it, or delete groups",
        )
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.Partition(
                        partition_index=each.partition_index,
                        error_code=_code(name, errors[name or "", each.partition_index]),
                    )
                    for each in topic.partitions
                ],
            )
            for name, topic in zip(names, request.topics, strict=True)
        ]
    )


def _code(name: str | None, error: GroupError | None) -> int:
    if name is None and error is GroupError.UNKNOWN_PARTITION:
        return _UNKNOWN_TOPIC_ID
    return group_code(error)


def _name(broker: Broker, topic_id: bytes) -> str | None:
    topic = broker.topics.get_by_id(topic_id)
    return None if topic is None else topic.name
