"""The compiled reader of flat JSON: what it takes, what it leaves, and that it stays in bounds."""

from __future__ import annotations

import ctypes
import json
import mmap
import random
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest

from neve.lake.values import json_flat, value_format
from neve.lake.values.json_flat import FlatJson, is_flat
from neve.lake.values.json_reference import ReferenceJsonDecoder
from neve.lake.values.types import TIMESTAMP

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("a rather long name", pa.int32()),
        ("total", pa.float64()),
        ("weight", pa.float32()),
        ("text", pa.string()),
        ("paid", pa.bool_()),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("größe", pa.string()),
    ]
)
FULL = (
    b'{"id":-12,"a rather long name":7,"total":1.5e-3,"weight":0.25,"text":"a\\u00e9\\n\\"",'
    b'"paid":true,"day":"2026-02-28","at":"2026-03-01T12:30:00.25+01:00","gr\xc3\xb6\xc3\x9fe":null}'
)


def taken(*values: bytes, schema: pa.Schema = COLUMNS) -> tuple[list[dict[str, object]], list[int]]:
    rows, places = FlatJson(schema).rows(pa.array(values, pa.binary()))
    rows.validate(full=True)
    return rows.to_pylist(), places.tolist()


def test_a_value_of_all_types() -> None:
    (row,), _ = taken(FULL)
    assert row["id"] == -12
    assert row["a rather long name"] == 7
    assert row["total"] == 1.5e-3
    assert row["weight"] == 0.25
    assert row["text"] == 'aé\n"'
    assert row["paid"] is True
    assert str(row["day"]) == "2026-02-28"
    assert str(row["at"]) == "2026-03-01 11:30:00.250000+00:00"
    assert row["größe"] is None


def test_fields_that_are_missing_are_null_and_order_does_not_matter() -> None:
    rows, places = taken(b'{"text":"x","id":1}', b" { } ", b'{"id":null}', b'{"id":2,"text":"y"}')
    assert places == [0, 1, 2, 3]
    assert [(row["id"], row["text"], row["at"]) for row in rows] == [
        (1, "x", None),
        (None, None, None),
        (None, None, None),
        (2, "y", None),
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"id":1',
        b'{"id":1}}',
        b'{"id":1}{"id":2}',
        b'{"id":1,}',
        b'{"id" 1}',
        b'{"id":1 "paid":true}',
        b'{"id":1,"id":2}',
        b'{"id":null,"id":2}',
        b'{"new":1}',
        b'{"i\\u0064":1}',
        b'{"id":01}',
        b'{"id":-}',
        b'{"id":-0}',
        b'{"id":1.0}',
        b'{"id":9223372036854775808}',
        b'{"id":"1"}',
        b'{"id":true}',
        b'{"a rather long name":2147483648}',
        b'{"total":1.}',
        b'{"total":.5}',
        b'{"total":1e}',
        b'{"total":NaN}',
        b'{"total":1e400}',
        b'{"total":1e-320}',
        b'{"total":12345678901234567890.5}',
        b'{"weight":3.5e38}',
        b'{"text":"a\nb"}',
        b'{"text":"\\x"}',
        b'{"text":"\\ud800"}',
        b'{"text":"\\ud800\\u0041"}',
        b'{"text":"\\udc00"}',
        b'{"text":"\xff"}',
        b'{"text":"\xc0\x80"}',
        b'{"text":"\xed\xa0\x80"}',
        b'{"text":"\xf4\x90\x80\x80"}',
        b'{"text":"\xe2\x82"}',
        b'{"text":1}',
        b'{"paid":True}',
        b'{"day":"2026-02-29"}',
        b'{"day":"2026-02-28T00:00:00Z"}',
        b'{"day":20000}',
        b'{"at":"2026-02-28T24:00:00Z"}',
        b'{"at":"2026-02-28T00:00:00.Z"}',
        b'{"at":"0001-01-01T00:00:00+01:00"}',
        b'{"at":300000000000000}',
        b'{"at":1.5}',
        b'{"at":"20}0-01-01T00:00:00Z"}',
        b'{"day":"20x0-01-01"}',
    ],
)
def test_what_it_is_not_sure_of_is_left_and_moves_nothing(value: bytes) -> None:
    rows, places = taken(b'{"id":1,"text":"before"}', value, b'{"id":3,"text":"after"}')
    assert places == [0, 2]
    assert [(row["id"], row["text"]) for row in rows] == [(1, "before"), (3, "after")]


@pytest.mark.parametrize("column", ["day", "at", "total", "id"])
def test_with_any_one_letter_changed_it_means_what_it_means_to_the_judge(column: str) -> None:
    written = {"day": b'"2026-02-28"', "at": b'"1969-12-31T23:59:58.25+01:00"'}
    value = b'{"%s":%s}' % (column.encode(), written.get(column, b"-9223372036854775807"))
    letters = [bytes([letter]) for letter in range(0x20, 0x7F)]
    values = [value[:at] + each + value[at + 1 :] for at in range(len(value)) for each in letters]
    rows, places = taken(*values)
    judge = ReferenceJsonDecoder(COLUMNS)
    judged = pa.array([judge.row(values[place]) for place in places], pa.struct(list(COLUMNS)))
    assert rows == judged.to_pylist()


@pytest.mark.parametrize("size", range(20))
def test_a_name_is_told_from_all_that_differ_in_one_letter(size: int) -> None:
    name = "abcdefghijklmnopqrstuvwxyz"[:size]
    others = [name[:at] + "!" + name[at + 1 :] for at in range(size)]
    others += [name + "!", "!" + name, name[:-1] if size else "!"]
    values = [b'{"%s":1}' % each.encode() for each in (name, *others)]
    rows, places = taken(*values, schema=pa.schema([(name, pa.int64())]))
    assert (rows, places) == ([{name: 1}], [0])


@pytest.mark.parametrize("size", range(20))
@pytest.mark.parametrize("letter", ["\x1f", '"', "\\", "é", "\x7f"])
def test_a_letter_that_matters_is_seen_at_every_place(size: int, letter: str) -> None:
    texts = ["x" * at + letter + "x" * (size - at) for at in range(size + 1)]
    values = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts]
    rows, _ = taken(*values)
    assert [row["text"] for row in rows] == texts
    plain = [b'{"text":"%s"}' % text.encode() for text in texts]
    assert len(taken(*plain)[0]) == (len(plain) if letter in "é\x7f" else 0)


@pytest.mark.parametrize("text", ["", "é", "€", "😀", "\x7f", "a" * 7 + '"', "\\" * 9, "\t\b\f\r/"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_texts_of_all_kinds(text: str, ascii_only: bool) -> None:
    value = json.dumps({"text": text, "id": 5}, ensure_ascii=ascii_only).encode()
    (row,), _ = taken(value)
    assert (row["text"], row["id"]) == (text, 5)


def number_texts(count: int) -> Iterator[str]:
    """Numbers of all sizes, many of them halfway between two doubles or next to that."""
    chance = random.Random(7)
    for _ in range(count):
        odd = 2 * chance.randrange(2**52, 2**53) + 1
        yield repr(chance.random() * 10.0 ** chance.randrange(-300, 300))
        yield str(odd << chance.randrange(9))
        yield f"{odd * 5 + chance.randrange(-1, 2)}e-1"
        yield f"{odd * 25 + chance.randrange(-1, 2)}E-02"
        yield f"-{chance.randrange(10**18)}e{chance.randrange(-290, 290)}"
        yield f"{chance.randrange(10**8)}.{chance.randrange(10**10)}e+{chance.randrange(40)}"


def test_doubles_are_the_nearest_there_are() -> None:
    texts = list(number_texts(5_000))
    values = [b'{"total":%s}' % text.encode() for text in texts]
    rows, places = FlatJson(COLUMNS).rows(pa.array(values, pa.binary()))
    assert len(places) > 0.99 * len(texts)
    found = rows.field("total").to_numpy(zero_copy_only=False).tolist()
    expected = [float(texts[place]) for place in places.tolist()]
    assert list(map(repr, found)) == list(map(repr, expected))


def test_many_columns_make_small_runs_that_hold_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_flat, "CELLS_MAX", 700)
    names = [f"column_{number}" for number in range(100)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    values = [json.dumps(dict.fromkeys(names, row)).encode() for row in range(50)]
    decoded = value_format({"format": "json"}).decode(pa.array(values, pa.binary()), schema)
    assert decoded.rows.column("column_99").to_pylist() == list(range(50))
    assert FlatJson(schema).rows_max == 7


def test_names_in_no_order_at_all_are_left_to_others() -> None:
    names = [f"column_{number}" for number in range(200)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    value = json.dumps({name: place for place, name in enumerate(reversed(names))}).encode()
    assert taken(value, schema=schema) == ([], [])
    decoded = value_format({"format": "json"}).decode(pa.array([value], pa.binary()), schema)
    assert decoded.rows.column("column_0").to_pylist() == [199]


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline"])
def test_names_that_need_escapes_are_not_for_it(name: str) -> None:
    assert not is_flat(pa.schema([(name, pa.int64())]))
    assert is_flat(pa.schema([("plain", pa.int64())]))


@pytest.fixture
def last_bytes_of_memory() -> Iterator[int]:
    """The address of a page that nobody may touch, behind one that everybody may."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    edge = start + mmap.PAGESIZE
    assert protect(edge, mmap.PAGESIZE, 0) == 0
    yield edge
    assert protect(edge, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def test_no_byte_behind_a_value_is_read(last_bytes_of_memory: int) -> None:
    """One that were ends this process."""
    reader = FlatJson(COLUMNS)
    for size in range(len(FULL) + 1):
        place = last_bytes_of_memory - size
        ctypes.memmove(place, FULL, size)
        data = pa.foreign_buffer(place, size)
        ends = pa.py_buffer(struct.pack("2i", 0, size))
        _, places = reader.rows(pa.Array.from_buffers(pa.binary(), 1, [None, ends, data]))
        assert places.tolist() == ([0] if size == len(FULL) else [])
