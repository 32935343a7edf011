"""Messages as bytes: what is right is read, and nothing that is wrong does more than raise."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.lake.pgwire import wire
from neve.lake.pgwire.sqlstate import SqlError, from_exception
from neve.lake.sql.errors import RefusedError
from unit.lake.pgwire import wire_client

PARSERS = (
    wire.parse_startup,
    wire.parse_query,
    wire.parse_parse,
    wire.parse_bind,
    wire.parse_target,
    wire.parse_execute,
    wire.parse_sasl_initial,
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
OIDS = st.lists(st.integers(0, 2**32 - 1), max_size=5)
VALUES = st.lists(st.none() | st.binary(max_size=30), max_size=5)
READ_OR_REFUSED = ("", "08P01", "22021", "22023")


def body(message: bytes) -> bytes:
    return message[5:]


def refusal(parser: Callable[[bytes], object], data: bytes) -> str:
    """The SQLSTATE that the parser refused these bytes with; empty if it read them."""
    try:
        parser(data)
    except SqlError as error:
        return error.code
    return ""


@given(NAMES, NAMES, OIDS)
def test_parse_is_read_as_it_was_written(name: str, sql: str, types: list[int]) -> None:
    read = wire.parse_parse(body(wire_client.parse(sql, name, types)))
    assert read == wire.Parse(name, sql, tuple(types))


@given(NAMES, NAMES, VALUES, st.integers(0, 1))
def test_bind_is_read_as_it_was_written(
    portal: str, statement: str, values: list[bytes | None], form: int
) -> None:
    sent = wire_client.bind(
        values, portal=portal, statement=statement, formats=[form] * len(values), results=[form]
    )
    read = wire.parse_bind(body(sent))
    formats = (form,) * len(values)
    assert read == wire.Bind(portal, statement, formats, tuple(values), (form,))


@given(st.sampled_from(PARSERS), st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(parser: Callable[[bytes], object], data: bytes) -> None:
    assert refusal(parser, data) in READ_OR_REFUSED


@given(st.data())
def test_a_message_with_changed_bytes_is_read_or_refused(data: st.DataObject) -> None:
    good = bytearray(
        body(
            wire_client.bind([b"abc", None], portal="p", statement="s", formats=[1, 0], results=[1])
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for sent in (bytes(good), bytes(good[:cut]), bytes(good) + b"\0"):
        assert refusal(wire.parse_bind, sent) in READ_OR_REFUSED


def test_a_count_that_cannot_be_is_refused_before_anything_is_made() -> None:
    with pytest.raises(SqlError, match="fewer fields than it announces"):
        wire.parse_parse(b"\0\0" + struct.pack(">H", 65_535))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, 105, 2**31 - 1])
def test_lengths_out_of_bounds_are_refused(length: int) -> None:
    with pytest.raises(SqlError):
        wire.body_length(struct.pack(">ci", b"Q", length), 100)
    with pytest.raises(SqlError):
        wire.startup_length(struct.pack(">i", length), 100)


def test_lengths_within_bounds_are_taken() -> None:
    assert wire.body_length(struct.pack(">ci", b"Q", 104), 100) == (b"Q", 100)
    assert wire.body_length(struct.pack(">ci", b"S", 4), 100) == (b"S", 0)


def test_errors_are_told_with_their_fields_and_no_zero_bytes() -> None:
    sent = wire.error_or_notice(SqlError("42601", "bad\0ly", hint="do", position=3))
    assert sent[:1] == b"E"
    fields = wire_client.fields_of(sent[5:])
    assert fields == {"S": "ERROR", "V": "ERROR", "C": "42601", "M": "badly", "H": "do", "P": "3"}
    assert wire.error_or_notice(SqlError("01000", "m", severity="WARNING"))[:1] == b"N"


class SparkLike(Exception):  # noqa: N818
    def getSqlState(self) -> str:  # noqa: N802
        return "42703"


def test_errors_of_an_engine_get_their_codes() -> None:
    wrapped = ValueError("outer")
    wrapped.__cause__ = SparkLike("inner")
    assert from_exception(wrapped).code == "42703"
    assert from_exception(RefusedError("no")).code == "42501"
    assert from_exception(ValueError()).code == "XX000"
    assert from_exception(ValueError()).message == "ValueError"
