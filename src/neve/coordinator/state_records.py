"""The records that store groups and offsets, in the formats of Kafka's own `__consumer_offsets`.

A key begins with a version that determines its kind: 0 and 1 an offset, 2 a group. A value begins
with a version of its own. Neve writes group values of version 3, and offset values of version 4,
the first that contains the topic's id. It reads all versions. `decode_key` returns None for a key
of another kind.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from neve.coordinator.group_messages import GroupSnapshot, MemberSnapshot
from neve.coordinator.offsets import NO_TOPIC_ID, CommittedOffset
from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.protocol.wire import uvarint

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 4
GROUP_VALUE_VERSION = 3
VALUE_VERSION_MAX = 4
_FLEXIBLE_FROM = 4
_TOPIC_ID_TAG = 0
_SHORT_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A generation, and since when the group has been in its state (wall clock; -1: unknown)."""

    snapshot: GroupSnapshot
    state_since_ms: int


# -- keys


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    head = struct.pack(">h", OFFSET_KEY_VERSION)
    return head + _string(group_id) + _string(topic) + struct.pack(">i", partition)


def encode_group_key(group_id: str) -> bytes:
    return struct.pack(">h", GROUP_KEY_VERSION) + _string(group_id)


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    reader = _Reader(data, "key")
    version = reader.number(">h")
    if version in (0, OFFSET_KEY_VERSION):
        return OffsetKey(reader.string(), reader.string(), reader.number(">i"))
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    return None


# -- offsets


def encode_offset(value: CommittedOffset) -> bytes:
    metadata = value.metadata.encode()
    tagged = b"\0"
    if value.topic_id != NO_TOPIC_ID:
        tagged = bytes((1, _TOPIC_ID_TAG, len(value.topic_id))) + value.topic_id
    return b"".join(
        (
            struct.pack(">hqi", OFFSET_VALUE_VERSION, value.offset, value.leader_epoch),
            uvarint(len(metadata) + 1),
            metadata,
            struct.pack(">q", value.commit_timestamp_ms),
            tagged,
        )
    )


def decode_offset(data: bytes) -> CommittedOffset:
    reader = _Reader(data, "offset")
    version = reader.version()
    offset = reader.number(">q")
    leader_epoch = reader.number(">i") if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.number(">q")
    if version == 1:
        reader.number(">q")  # its own expiry time, ignored: offsets.retention.ms applies
    topic_id = reader.tagged().get(_TOPIC_ID_TAG, NO_TOPIC_ID)
    if len(topic_id) != len(NO_TOPIC_ID):
        raise reader.damaged(f"a topic id of {len(topic_id)} bytes")
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, topic_id)


# -- groups


def encode_group(record: GroupRecord) -> bytes:
    group = record.snapshot
    parts = [
        struct.pack(">h", GROUP_VALUE_VERSION),
        _string(group.protocol_type),
        struct.pack(">i", group.generation),
        _string(group.protocol_name),
        _string(group.leader_id),
        struct.pack(">qi", record.state_since_ms, len(group.members)),
    ]
    for member in group.members:
        parts += [
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            struct.pack(">i", len(member.subscription)),
            member.subscription,
            struct.pack(">i", len(member.assignment)),
            member.assignment,
        ]
    return b"".join(parts)


def decode_group(group_id: str, data: bytes) -> GroupRecord:
    reader = _Reader(data, "group")
    version = reader.version()
    protocol_type = reader.string()
    generation = reader.number(">i")
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_since_ms = reader.number(">q") if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.count()))
    reader.tagged()
    snapshot = GroupSnapshot(
        group_id=group_id,
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader_id=leader_id,
        members=members,
    )
    return GroupRecord(snapshot, state_since_ms)


def _decode_member(reader: _Reader, version: int) -> MemberSnapshot:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.number(">i") if version >= 1 else -1
    session_timeout_ms = reader.number(">i")
    subscription, assignment = reader.sized(), reader.sized()
    reader.tagged()
    return MemberSnapshot(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


# -- fields


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    if len(data) > _SHORT_MAX:
        raise InvalidError(f"a name of {len(data)} bytes is too long for a group's records")
    return struct.pack(">h", len(data)) + data


class _Reader:
    """Reads the fields of a record. Raises DamagedError if the bytes do not fit the format."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self._is_flexible = False

    def damaged(self, reason: str) -> DamagedError:
        return DamagedError(f"a {self._what} record of __consumer_offsets", reason)

    def version(self) -> int:
        version = self.number(">h")
        if not 0 <= version <= VALUE_VERSION_MAX:
            raise UnsupportedError(
                f"a {self._what} record of __consumer_offsets has version {version}, this Neve "
                f"reads up to {VALUE_VERSION_MAX}: use a newer one"
            )
        self._is_flexible = version >= _FLEXIBLE_FROM
        return version

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._position)
        except struct.error:
            raise self.damaged("it ends too early") from None
        self._position += struct.calcsize(form)
        found: int = value
        return found

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.number(">B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.damaged("a number that does not end")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise self.damaged(f"a length of {length} where less is left")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def sized(self) -> bytes:
        return self._take(self._varint() - 1 if self._is_flexible else self.number(">i"))

    def count(self) -> int:
        count = self._varint() - 1 if self._is_flexible else self.number(">i")
        if not 0 <= count <= len(self._data) - self._position:
            raise self.damaged(f"a count of {count} where less is left")
        return count

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self._is_flexible else self.number(">h")
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise self.damaged("a text that is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.damaged("a text that is null")
        return text

    def tagged(self) -> dict[int, bytes]:
        if not self._is_flexible:
            return {}
        count = self._varint()
        return {self._varint(): self._take(self._varint()) for _ in range(count)}
