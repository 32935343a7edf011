"""Groups and offsets as records: Kafka's bytes, whatever version, and damage told as such."""

from __future__ import annotations

import struct

import pytest

from neve.coordinator.group_messages import GroupSnapshot, MemberSnapshot
from neve.coordinator.offsets import NO_TOPIC_ID, CommittedOffset
from neve.coordinator.state_records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from neve.errors import DamagedError, InvalidError, UnsupportedError

TOPIC_ID = bytes(range(16))
MEMBER = MemberSnapshot(
    member_id="m",
    instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"sub",
    assignment=b"asg",
)
GROUP = GroupSnapshot(
    group_id="g",
    protocol_type="consumer",
    generation=7,
    protocol_name="range",
    leader_id="m",
    members=(MEMBER,),
)


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace("|", ""))


# --- bytes, field by field as Kafka describes them


def test_an_offset_s_key() -> None:
    key = encode_offset_key("g", "orders", 3)
    assert key == hexed("0001 | 0001 67 | 0006 6f7264657273 | 00000003")
    assert decode_key(key) == OffsetKey("g", "orders", 3)
    assert decode_key(b"\0\0" + key[2:]) == OffsetKey("g", "orders", 3)


def test_a_group_s_key() -> None:
    assert encode_group_key("g") == hexed("0002 | 0001 67")
    assert decode_key(encode_group_key("grüß")) == GroupKey("grüß")


def test_a_key_of_another_kind_is_left_alone() -> None:
    assert decode_key(hexed("0003 | 0001 67")) is None


def test_an_offset_with_its_topic_s_id() -> None:
    value = CommittedOffset(42, 5, "note", 1_000, TOPIC_ID)
    data = encode_offset(value)
    assert (
        data
        == hexed("0004 | 000000000000002a | 00000005 | 05 6e6f7465 | 00000000000003e8 | 01 00 10")
        + TOPIC_ID
    )
    assert decode_offset(data) == value


def test_an_offset_without_a_topic_s_id() -> None:
    value = CommittedOffset(42, -1, "", 1_000, NO_TOPIC_ID)
    data = encode_offset(value)
    assert data == hexed("0004 | 000000000000002a | ffffffff | 01 | 00000000000003e8 | 00")
    assert decode_offset(data) == value


def test_long_metadata() -> None:
    value = CommittedOffset(1, 0, "é" * 2_000, 0, TOPIC_ID)
    assert decode_offset(encode_offset(value)) == value


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        pytest.param("0000 | 000000000000002a | 0001 78 | 00000000000003e8", -1, id="0"),
        pytest.param(
            "0001 | 000000000000002a | 0001 78 | 00000000000003e8 | 00000000000007d0", -1, id="1"
        ),
        pytest.param("0002 | 000000000000002a | 0001 78 | 00000000000003e8", -1, id="2"),
        pytest.param("0003 | 000000000000002a | 00000005 | 0001 78 | 00000000000003e8", 5, id="3"),
    ],
)
def test_offsets_of_earlier_versions(data: str, epoch: int) -> None:
    assert decode_offset(hexed(data)) == CommittedOffset(42, epoch, "x", 1_000, NO_TOPIC_ID)


def test_unknown_tagged_fields_are_passed_over() -> None:
    data = hexed("0004 | 000000000000002a | ffffffff | 01 | 00000000000003e8 | 01 07 02 abcd")
    assert decode_offset(data).topic_id == NO_TOPIC_ID


def test_a_group() -> None:
    data = encode_group(GroupRecord(GROUP, 1_000))
    assert data == hexed(
        "0003 | 0008 636f6e73756d6572 | 00000007 | 0005 72616e6765 | 0001 6d | 00000000000003e8"
        " | 00000001 | 0001 6d | 0001 69 | 0001 63 | 0002 2f68 | 000493e0 | 0000afc8"
        " | 00000003 737562 | 00000003 617367"
    )
    assert decode_group("g", data) == GroupRecord(GROUP, 1_000)


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    empty = GroupSnapshot(
        group_id="g",
        protocol_type="consumer",
        generation=8,
        protocol_name=None,
        leader_id=None,
        members=(),
    )
    data = encode_group(GroupRecord(empty, 5))
    assert data[16:20] == b"\xff\xff\xff\xff"
    assert decode_group("g", data) == GroupRecord(empty, 5)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_groups_of_earlier_versions(version: int) -> None:
    data = struct.pack(">h", version) + string("consumer") + struct.pack(">i", 7)
    data += string("range") + string("m")
    data += struct.pack(">q", 1_000) if version >= 2 else b""
    data += struct.pack(">i", 1) + string("m") + string("c") + string("/h")
    data += struct.pack(">i", 300_000) if version >= 1 else b""
    data += struct.pack(">i", 45_000) + b"\0\0\0\3sub" + b"\0\0\0\3asg"
    record = decode_group("g", data)
    assert record.state_since_ms == (1_000 if version >= 2 else -1)
    [member] = record.snapshot.members
    assert member.instance_id is None
    assert member.rebalance_timeout_ms == (300_000 if version else 45_000)
    assert (member.subscription, member.assignment) == (b"sub", b"asg")


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def test_a_group_of_the_flexible_version() -> None:
    data = b"\0\4" + compact("consumer") + struct.pack(">i", 7) + compact("range") + compact("m")
    data += struct.pack(">q", 1_000) + b"\2" + compact("m") + compact("i") + compact("c")
    data += compact("/h") + struct.pack(">ii", 300_000, 45_000) + b"\4sub\4asg\0\0"
    assert decode_group("g", data) == GroupRecord(GROUP, 1_000)


# --- damage


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_truncated_record_is_damage(cut: int) -> None:
    group = encode_group(GroupRecord(GROUP, 1_000))
    offset = encode_offset(CommittedOffset(42, 5, "note", 1_000, TOPIC_ID))
    with pytest.raises(DamagedError):
        decode_group("g", group[:cut])
    with pytest.raises(DamagedError):
        decode_offset(offset[: min(cut, len(offset) - 1)])
    with pytest.raises(DamagedError):
        decode_key(encode_offset_key("g", "orders", 3)[: min(cut, 16)])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("0003 | ffff | 00000007", id="a null text"),
        pytest.param("0003 | 0002 c328 | 00000007", id="no UTF-8"),
        pytest.param(
            "0003 | 0000 | 00000007 | 0000 | 0000 | 0000000000000000 | 7fffffff", id="count"
        ),
        pytest.param(
            "0003 | 0000 | 00000007 | 0000 | 0000 | 0000000000000000 | ffffffff", id="less"
        ),
    ],
)
def test_what_makes_no_sense_is_damage(data: str) -> None:
    with pytest.raises(DamagedError, match="group record of __consumer_offsets"):
        decode_group("g", hexed(data))


def test_a_newer_version_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedError, match="version 5"):
        decode_offset(hexed("0005 | 00"))
    with pytest.raises(UnsupportedError, match="version 9"):
        decode_group("g", hexed("0009 | 00"))


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidError, match="too long"):
        encode_group_key("x" * 40_000)
