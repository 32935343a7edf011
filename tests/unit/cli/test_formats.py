"""`-f`: how records are written and read."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.bucket.model import Record
from neve.cli.format_syntax import Field, FormatSyntaxError, parse
from neve.cli.input_format import InputError, Row, rows
from neve.cli.record_format import compile_format, iso_time
from neve.cli.record_json import record_line

RECORD = Record("orders", 3, 42, 1_767_225_600_123, 0, b"k\xff", b"val", (("a", b"1"), ("b", None)))
NULLS = Record("t", 0, 0, 0, 0, None, None)


def read(text: str, data: bytes, *, at_once: int = 1 << 20) -> list[Row]:
    source = io.BytesIO(data)
    return list(rows(text, lambda count: source.read(min(count, at_once))))


# --- notation


def test_pieces_of_a_format() -> None:
    assert parse(r"a%%\x00%v{hex}%h{%k{json}=%v}\n\t\\") == [
        b"a%\x00",
        Field("v", "hex"),
        Field("h", "%k{json}=%v"),
        b"\n\t\\",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("%", "a % at the end"),
        ("\\q", r"\\q is not an escape"),
        ("\\", "is not an escape"),
        ("\\x1", r"\\x is not an escape"),
        ("%v{hex", "not closed"),
        ("%q", "%q is not a field"),
        ("%v{oct}", "{hex}, {base64} and {json}"),
        ("%p{hex}", "has no modifier"),
        ("%d{unix}", "%d{iso}"),
        ("%h{%o}", "not a field of a header"),
    ],
)
def test_what_is_no_format_says_why(text: str, told: str) -> None:
    with pytest.raises(FormatSyntaxError) as caught:
        compile_format(text)
    assert told.replace("\\\\", "\\") in str(caught.value)
    assert str(caught.value).startswith("-f ")


# --- writing


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("%v\\n", b"val\n"),
        ("%t-%p@%o", b"orders-3@42"),
        ("%k|%k{hex}|%k{base64}", b"k\xff|6bff|a/8="),
        ("%k{json} %v{json}", b'{"base64":"a/8="} "val"'),
        ("%T %K %V %H", b"6 2 3 2"),
        ("%d %d{iso}", b"1767225600123 2026-01-01T00:00:00.123Z"),
        ("%h{%k=%v,}", b"a=1,b=,"),
        ("%h{%k{json}:%v{json};%V }", b'"a":"1";1 "b":null;-1 '),
        ("100%%", b"100%"),
        ("", b""),
    ],
)
def test_what_a_record_is_written_as(text: str, written: bytes) -> None:
    assert compile_format(text)(RECORD) == written


def test_nulls() -> None:
    assert compile_format("[%k] %k{json} %K %V %h")(NULLS) == b"[] null -1 -1 "


def test_a_time_that_no_calendar_has_is_written_as_its_number() -> None:
    assert iso_time(2**62) == str(2**62)


# --- reading


@pytest.mark.parametrize("at_once", [1, 2, 1000])
@pytest.mark.parametrize(
    ("text", "data", "found"),
    [
        (r"%v\n", b"a\n\nb", [Row(value=b"a"), Row(value=b""), Row(value=b"b")]),
        (r"%v", b"a\nb\n", [Row(value=b"a"), Row(value=b"b")]),
        (r"%v\n", b"", []),
        (r"%k\t%v\n", b"k\tv\tw\nl\t\n", [Row(b"k", b"v\tw"), Row(b"l", b"")]),
        (r"%k=%v;;", b"a=1;2;;b=3", [Row(b"a", b"1;2"), Row(b"b", b"3")]),
        (r"%p %d %v", b"1 99 x\n", [Row(None, b"x", 1, 99)]),
        (r"<%v{hex}>\n", b"<00ff>\n", [Row(value=b"\x00\xff")]),
        (r"%k{base64} %v{json}", b'AA== null\nAA== "x"\n', [Row(b"\0"), Row(b"\0", b"x")]),
        (r"%K %V %k%v", b"1 2 k\n\n-1 0 ", [Row(b"k", b"\n\n"), Row(None, b"")]),
        (r"%K:%k,%v\n", b"3:a,b,c\n", [Row(b"a,b", b"c")]),
    ],
)
def test_what_is_read(text: str, data: bytes, found: list[Row], at_once: int) -> None:
    assert read(text, data, at_once=at_once) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("%k%v", "put a delimiter between %k and %v"),
        ("%k\\n", ""),
        ("%t %v", "%t is not an input field"),
        ("%v %v", "%v occurs twice"),
        ("%v %V %k", "%V must come before %v"),
        ("%p\\n", "neither %k nor %v"),
        ("%v{oct}", "unknown modifier"),
        ("%V %v{hex}", "remove the braces"),
        ("\\q", "not an escape"),
    ],
)
def test_formats_that_cannot_be_read(text: str, told: str) -> None:
    if not told:
        assert read(text, b"k\n") == [Row(b"k")]
        return
    with pytest.raises(FormatSyntaxError, match="-f ") as caught:
        read(text, b"")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "data", "told"),
    [
        (r"%k\t%v\n", b"k\tv\nno tab\n", r"record 2 of the input: no '\\t' follows %k"),
        (r"<%v\n", b"x\n", "record 1 of the input: '<' is missing"),
        (r"%v{hex}\n", b"0g\n", "'0g' is not valid hex"),
        (r"%v{base64}\n", b"x\n", "'x' is not valid base64"),
        (r"%v{json}\n", b"{}\n", "is not valid json"),
        (r"%p %v\n", b"one x\n", "%p must be an integer >= 0, not 'one'"),
        (r"%p %v\n", b"-1 x\n", "must be an integer >= 0"),
        (r"%V %v", b"5 abc", "ends before 5 bytes"),
        (r"%V %v", b"5", "ends within %V"),
        (r"%V %v", b"x y", "%V must be an integer >= -1, not 'x'"),
        (r"%V %v", b"999999999999 y", "more than"),
        (r"%V %v\n", b"1 y!", r"'\\n' is missing"),
        ("json", b"{", "not a record in the format of `consume --json`"),
        ("json", b'{"value": 5}', "not a record"),
        ("json", b'{"value": {"base64": "x"}}', "not a record"),
    ],
)
def test_input_that_does_not_fit_says_where(text: str, data: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(text, data)


def test_an_input_without_its_delimiter_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("neve.cli.input_format.RECORD_BYTES_MAX", 1000)
    endless = rows("%v\\n", lambda count: b"x" * 100)
    with pytest.raises(InputError, match="longer than 1000 bytes"):
        next(endless)


any_bytes = st.none() | st.binary(max_size=20)


@given(st.lists(st.tuples(any_bytes, any_bytes), max_size=5), st.integers(1, 50))
def test_what_is_written_with_lengths_is_read_back(
    pairs: list[tuple[bytes | None, bytes | None]], at_once: int
) -> None:
    render = compile_format("%K %V %k%v")
    written = b"".join(render(NULLS._replace(key=k, value=v)) for k, v in pairs)
    assert read("%K %V %k%v", written, at_once=at_once) == [Row(k, v) for k, v in pairs]


headers = st.lists(st.tuples(st.text(max_size=5), any_bytes), max_size=3)


@given(any_bytes, any_bytes, headers)
def test_what_is_written_as_json_is_read_back(
    key: bytes | None, value: bytes | None, given: list[tuple[str, bytes | None]]
) -> None:
    record = Record("t", 1, 2, 3, 0, key, value, tuple(given))
    assert read("json", record_line(record, "text")) == [Row(key, value, None, 3, given)]
