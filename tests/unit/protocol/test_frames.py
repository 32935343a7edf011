"""Headers and frames, compared with kio's headers."""

from __future__ import annotations

import struct
from io import BytesIO

import pytest
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as AnswerV0
from kio.schema.response_header.v1.header import ResponseHeader as AnswerV1
from kio.serial import entity_reader, entity_writer

from neve.protocol.errors import MalformedError
from neve.protocol.frames import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    request_frame,
    response_frame,
)
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.metadata import METADATA
from neve.protocol.wire import uvarint


@pytest.mark.parametrize(("version", "header"), [(8, HeaderV1), (9, HeaderV2)])
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "é" * 70])
def test_a_request_s_header(version: int, header: type, client_id: str | None) -> None:
    buffer = BytesIO()
    their = header(
        request_api_key=3, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    entity_writer(header)(buffer, their)
    data = buffer.getvalue()
    wanted = RequestHeader(3, version, -7, client_id, len(data))
    assert decode_request_header(memoryview(data + b"body")) == wanted
    moved = decode_request_header(memoryview(b"xx" + data), 2)
    assert moved.end == len(data) + 2
    frame = request_frame(METADATA, version, -7, client_id, [b"body"])
    assert b"".join(frame) == struct.pack(">i", len(data) + 4) + data + b"body"


def test_an_api_that_is_not_known_has_the_plain_header() -> None:
    data = struct.pack(">hhih", 999, 99, 5, 2) + b"me\0"
    assert decode_request_header(memoryview(data)) == RequestHeader(999, 99, 5, "me", 12)


def test_a_version_that_is_too_new_has_the_flexible_header() -> None:
    data = struct.pack(">hhih", 18, 99, 5, -1) + b"\0"
    assert decode_request_header(memoryview(data)).end == 11


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    data = struct.pack(">hhih", 3, 9, 5, -1) + b"\x02\x00\x03abc\x81\x01\x00"
    assert decode_request_header(memoryview(data + b"body")).end == len(data)


def test_too_many_tags_of_a_header_are_refused() -> None:
    start = struct.pack(">hhih", 3, 9, 5, -1)
    few = start + uvarint(1_000) + b"\x7f\0" * 1_000
    assert decode_request_header(memoryview(few)).end == len(few)
    many = start + uvarint(50_001) + b"\x7f\0" * 50_001
    with pytest.raises(MalformedError, match=r"tagged fields .* more than 50000 elements"):
        decode_request_header(memoryview(many))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack(">hhi", 3, 9, 5),
        struct.pack(">hhih", 3, 9, 5, -2) + b"\0",
        struct.pack(">hhih", 3, 9, 5, 100) + b"abc",
        struct.pack(">hhih", 3, 9, 5, 2) + b"\xff\xff\0",
        struct.pack(">hhih", 3, 9, 5, -1),
        struct.pack(">hhih", 3, 9, 5, -1) + b"\x01\x00\x05abc",
        struct.pack(">hhih", 3, 9, 5, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_a_malformed_header(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_request_header(memoryview(data))


@pytest.mark.parametrize(
    ("api", "version", "header"),
    [
        (METADATA, 8, AnswerV0),
        (METADATA, 9, AnswerV1),
        (API_VERSIONS, 0, AnswerV0),
        (API_VERSIONS, 4, AnswerV0),
    ],
)
def test_a_response_s_frame(api: object, version: int, header: type) -> None:
    frame = b"".join(response_frame(api, version, 1234, [b"bo", b"dy"]))
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    theirs, size = entity_reader(header)(frame[4:], 0)
    assert theirs.correlation_id == 1234
    assert frame[4 + size :] == b"body"
    assert decode_response_header(api, version, memoryview(frame), 4) == (1234, 4 + size)


def test_what_is_small_goes_in_one_part_and_records_as_they_are() -> None:
    records = memoryview(b"batches" * 100)
    partition = FETCH.Response.Partition(records=records)
    response = FETCH.Response(responses=[FETCH.Response.Topic(partitions=[partition])])
    parts = response_frame(FETCH, 12, 1, FETCH.Response.encode(response, 12))
    assert len(parts) == 3
    assert parts[1] is records


def test_a_response_without_a_body() -> None:
    assert response_frame(METADATA, 0, 1, []) == [struct.pack(">ii", 4, 1)]


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\0\5ab"])
def test_a_malformed_response_header(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_response_header(METADATA, 9, memoryview(data))
