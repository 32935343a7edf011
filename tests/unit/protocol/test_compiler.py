"""What `define` makes of a description: classes, codecs, and their bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from neve.errors import InvalidError, UnsupportedError
from neve.protocol.compiler import define
from neve.protocol.errors import MalformedError
from neve.protocol.messages import APIS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.produce import PRODUCE
from neve.protocol.wire import uvarint

SAMPLE = define(
    """
    Sample 700, versions 0-3, flexible 2+
    request
      flag bool
      small uint16
      wide uint32
      ratio float64
      ids []uuid
      names []string 1+
      blobs []bytes
      flags []bool
      inner Inner
        size int32 = 7
        label string nullable = null
      spare Spare nullable = null
        size int8
      others []Inner
      extra Extra 2+ nullable tag 0 = null
        sizes []int64
      words []string 2+ nullable tag 5
      note string 3+ tag 300 = "none"
    response
    """
)
Request = SAMPLE.Request


def written(value: object, version: int) -> bytes:
    return b"".join(Request.encode(value, version))


def read(data: bytes, version: int) -> object:
    return Request.decode(memoryview(data), version)


FULL = Request(
    flag=True,
    small=65_535,
    wide=2**32 - 1,
    ratio=0.5,
    ids=[bytes(range(16)), bytes(16)],
    names=["a", "", "é"],
    blobs=[b"", b"\0" * 200],
    flags=[True, False],
    inner=Request.Inner(size=1, label="x"),
    spare=Request.Spare(size=-1),
    others=[Request.Inner(), Request.Inner(label="")],
    extra=Request.Extra(sizes=[1, -1]),
    words=None,
    note="é" * 100,
)


def test_every_type_comes_back() -> None:
    assert read(written(FULL, 3), 3) == FULL


def test_bytes_of_the_old_kind() -> None:
    value = Request(inner=Request.Inner(label="ab"), others=[Request.Inner()], blobs=[b"xyz"])
    numbers = struct.pack(">?HId", False, 0, 0, 0.0)
    lists = struct.pack(">i", 0) + struct.pack(">ii", 1, 3) + b"xyz" + struct.pack(">i", 0)
    inner = struct.pack(">ih", 7, 2) + b"ab"
    rest = b"\xff" + struct.pack(">iih", 1, 7, -1)
    assert written(value, 0) == numbers + lists + inner + rest


def test_bytes_of_the_flexible_kind() -> None:
    value = Request(spare=Request.Spare(size=3), words=["w"], note="nn")
    numbers = struct.pack(">?HId", False, 0, 0, 0.0)
    inner = struct.pack(">i", 7) + b"\0" + b"\0"
    tags = b"\x02" + b"\x05\x03\x02\x02w" + b"\xac\x02\x03\x03nn"
    assert written(value, 3) == numbers + b"\1\1\1\1" + inner + b"\1\3\0" + b"\1" + tags


def test_defaults_of_a_new_instance() -> None:
    value = Request()
    assert (value.inner, value.spare, value.extra) == (Request.Inner(size=7), None, None)
    assert (value.words, value.note) == ([], "none")
    assert value.inner is not Request().inner
    assert value.words is not Request().words


def test_arguments_go_by_name() -> None:
    with pytest.raises(TypeError):
        Request(True)
    with pytest.raises(TypeError):
        Request(flagg=True)


def test_an_instance_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Request().other = 1


def test_a_field_that_the_version_lacks_is_dropped() -> None:
    back = read(written(FULL, 1), 1)
    assert (back.extra, back.words, back.note) == (None, [], "none")
    assert back.names == FULL.names


def test_known_tags_among_unknown_ones_and_in_any_order() -> None:
    plain = written(Request(), 3)[:-1]
    note, unknown = b"\xac\x02\x03\x03nn", b"\x07\x02xy"
    words = b"\x05\x03\x02\x02w"
    back = read(plain + b"\x03" + unknown + note + words, 3)
    assert back == Request(note="nn", words=["w"])


@pytest.mark.parametrize("size", [2, 4])
def test_a_tagged_field_that_is_not_as_long_as_it_says(size: int) -> None:
    plain = written(Request(), 3)[:-1]
    with pytest.raises(MalformedError, match=r"tagged field 300|needs"):
        read(plain + b"\x01\xac\x02" + bytes([size]) + b"\x03nn\0", 3)


def test_tags_within_structs_of_lists() -> None:
    topic = FETCH.Request.Topic(
        partitions=[FETCH.Request.Partition(replica_directory_id=b"d" * 16, high_watermark=4)]
    )
    value = FETCH.Request(topics=[topic], replica_state=FETCH.Request.ReplicaState(replica_id=3))
    data = b"".join(FETCH.Request.encode(value, 18))
    assert FETCH.Request.decode(memoryview(data), 18) == value
    assert b"".join(FETCH.Request.encode(value, 16)).count(b"d" * 16) == 0


@pytest.mark.parametrize("version", [-1, 4, 99])
def test_a_version_that_is_not_there(version: int) -> None:
    with pytest.raises(UnsupportedError, match="Sample has versions 0-3"):
        read(b"", version)
    with pytest.raises(UnsupportedError, match="Sample has versions 0-3"):
        written(Request(), version)


def test_a_value_that_does_not_fit() -> None:
    with pytest.raises(InvalidError, match="cannot be encoded"):
        written(Request(small=-1), 3)
    with pytest.raises(InvalidError, match="cannot be encoded"):
        written(Request(names=["x" * 40_000]), 1)
    with pytest.raises(InvalidError, match="cannot be encoded"):
        written(Request(names=["\udc80"]), 1)


@pytest.mark.parametrize("version", [1, 3])
def test_null_where_it_is_not_allowed(version: int) -> None:
    data = bytearray(written(Request(), version))
    at = 15  # ids
    data[at : at + (1 if version == 3 else 4)] = b"\0" if version == 3 else b"\xff" * 4
    with pytest.raises(MalformedError, match=r"ids at byte .* is null"):
        read(bytes(data), version)


def test_a_negative_length() -> None:
    data = bytearray(written(Request(), 1))
    data[15:19] = struct.pack(">i", -2)
    with pytest.raises(MalformedError, match="ids at byte 19 has length -2"):
        read(bytes(data), 1)


def test_a_tagged_struct_of_plain_values_is_shared_and_cannot_be_changed() -> None:
    partition = PRODUCE.Response.Partition()
    assert partition.current_leader is PRODUCE.Response.Partition().current_leader
    with pytest.raises(AttributeError):
        partition.current_leader.leader_id = 1
    partition.current_leader = PRODUCE.Response.Leader(leader_id=1)


# --- records


def test_records_are_slices_of_what_was_received() -> None:
    partition = PRODUCE.Request.Partition(index=1, records=b"batch")
    value = PRODUCE.Request(topic_data=[PRODUCE.Request.Topic(partition_data=[partition])])
    for version in (3, 9):
        buffer = bytearray(b"".join(PRODUCE.Request.encode(value, version)))
        got = PRODUCE.Request.decode(memoryview(buffer), version)
        records = got.topic_data[0].partition_data[0].records
        assert records.obj is buffer
        assert records == b"batch"
        buffer[buffer.index(b"batch")] = ord("c")
        assert records == b"catch"


@pytest.mark.parametrize("version", [4, 12, 18])
def test_records_are_passed_on_without_a_copy(version: int) -> None:
    pieces = [memoryview(b"one"), bytearray(b"two"), b"three"]
    rows = [
        FETCH.Response.Partition(partition_index=0, records=pieces),
        FETCH.Response.Partition(partition_index=1, records=()),
        FETCH.Response.Partition(partition_index=2, records=None),
        FETCH.Response.Partition(partition_index=3, records=memoryview(b"four")),
    ]
    value = FETCH.Response(responses=[FETCH.Response.Topic(partitions=rows)])
    parts = FETCH.Response.encode(value, version)
    assert [part for part in parts if any(part is piece for piece in pieces)] == pieces
    assert any(part is rows[3].records for part in parts)
    assert len(parts) == (6 if version == 4 else 7)
    got = FETCH.Response.decode(memoryview(b"".join(parts)), version)
    read_back = [row.records for row in got.responses[0].partitions]
    assert read_back == [b"onetwothree", b"", None, b"four"]


def test_small_things_are_one_part() -> None:
    value = PRODUCE.Response(responses=[PRODUCE.Response.Topic(name="t")] * 20)
    assert len(PRODUCE.Response.encode(value, 9)) == 1


# --- the list


def test_every_api_is_listed_under_its_key() -> None:
    assert all(api.key == key for key, api in APIS.items())
    assert list(APIS) == sorted(APIS)
    assert {0, 1, 2, 3, 18, 22, 23, 60, 75} <= set(APIS)
    assert repr(APIS[3]) == "<Api Metadata 3, versions 0-13>"


def test_produce_is_there_from_version_0() -> None:
    """librdkafka takes a broker without it for one that cannot take batches."""
    assert (PRODUCE.min_version, PRODUCE.flexible_from) == (0, 9)


def test_a_request_of_too_many_elements_is_refused_however_they_are_spread() -> None:
    """Two bytes on the wire are two hundred in memory: the frame's size alone is no bound."""
    topic = PRODUCE.Request.Topic
    few = PRODUCE.Request(topic_data=[topic()] * 1_000)
    data = b"".join(PRODUCE.Request.encode(few, 9))
    assert len(PRODUCE.Request.decode(memoryview(data), 9).topic_data) == 1_000
    part = PRODUCE.Request.Partition()
    spread = PRODUCE.Request(topic_data=[topic(partition_data=[part] * 400)] * 150)
    flat = PRODUCE.Request(topic_data=[topic()] * 50_001)
    for many in (spread, flat):
        data = b"".join(PRODUCE.Request.encode(many, 9))
        with pytest.raises(MalformedError, match="more than 50000 elements"):
            PRODUCE.Request.decode(memoryview(data), 9)


def _tagged(count: int, field: bytes = b"\x7f\0") -> bytes:
    """A section of tagged fields: `field`, which is an unknown empty one, so many times."""
    return uvarint(count) + field * count


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        # after the last field of a struct that has no tagged fields, and of one that has
        pytest.param(METADATA, 9, b"\1\0\0\0", id="none known"),
        pytest.param(FETCH, 12, bytes(25) + b"\1\1\1", id="some known"),
    ],
)
def test_tagged_fields_count_as_elements(api: Any, version: int, body: bytes) -> None:
    """They have two bytes each and are read one by one: a frame of them would take seconds."""
    few = memoryview(body + _tagged(1_000))
    api.Request.decode(few, version)
    many = memoryview(body + _tagged(50_001))
    with pytest.raises(MalformedError, match=r"tagged fields .* more than 50000 elements"):
        api.Request.decode(many, version)


def test_tagged_fields_of_all_structs_count_together() -> None:
    topic = b"\1\1" + _tagged(400)  # no name, no partitions
    data = b"\0\xff\xff\0\0\0\0" + uvarint(151) + topic * 150 + b"\0"
    with pytest.raises(MalformedError, match=r"tagged fields .* more than 50000 elements"):
        PRODUCE.Request.decode(memoryview(data), 9)
    same_again = FETCH.Request(cluster_id="c")
    data = b"".join(FETCH.Request.encode(same_again, 12))
    start, known = data[:-5], data[-4:]
    with pytest.raises(MalformedError, match=r"tagged fields .* more than 50000 elements"):
        FETCH.Request.decode(memoryview(start + _tagged(50_001, known)), 12)


def test_a_response_may_have_as_many_elements_as_it_likes() -> None:
    many = PRODUCE.Response(responses=[PRODUCE.Response.Topic()] * 50_001)
    data = b"".join(PRODUCE.Response.encode(many, 9))
    assert len(PRODUCE.Response.decode(memoryview(data), 9).responses) == 50_001
    tagged = memoryview(b"\1\0\0\0\0" + _tagged(50_001))
    assert PRODUCE.Response.decode(tagged, 9).responses == []
