"""A simple decoder of JSON values, and values to decode: those that fit a schema, and others.

It uses the standard library's json and the simplest form of each rule, independently of the code
under test.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from neve.lake.values.types import TIMESTAMP, list_of, map_of

FLAT = pa.schema(
    [
        ("a", pa.int64()),
        ("i", pa.int32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("x", pa.decimal128(10, 2)),
        ("t", TIMESTAMP),
        ("y", pa.date32()),
        ("o", pa.struct([("q", pa.int64()), ("r", list_of(pa.string()))])),
        ("l", list_of(pa.struct([("z", pa.float64())]))),
    ]
)
SIMPLE = pa.schema([each for each in FLAT if each.name in "aidsbty"] + [("f", pa.float32())])
WITH_MAP = pa.schema([("a", pa.int64()), ("m", map_of(pa.int64()))])

# --- the reading


class BadError(Exception):
    pass


def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(found)) != len(found):
        raise BadError("a name twice")
    return dict(found)


def refuse(_: str) -> None:
    raise BadError("NaN or infinity")


def fraction(text: str) -> Decimal:
    if math.isinf(float(text)):
        raise BadError("out of range")
    return Decimal(text)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def read(value: bytes) -> Any:
    try:
        text = value.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        found = json.loads(
            text, object_pairs_hook=pairs, parse_constant=refuse, parse_float=fraction
        )
        json.dumps(found, ensure_ascii=False, default=str).encode()  # no lone surrogates
    except (ValueError, RecursionError) as error:
        raise BadError(str(error)) from None
    if depth(found) > 100:
        raise BadError("too deep")
    return found


def whole(low: int, high: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise BadError("no integer")
        return value

    return convert


def real(value: Any) -> float:
    if type(value) not in (int, Decimal):
        raise BadError("no number")
    try:
        return float(value)
    except OverflowError:
        raise BadError("out of range") from None


def single(value: Any) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", real(value)))[0]  # type: ignore[no-any-return]
    except OverflowError:
        raise BadError("out of range") from None


def exactly(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise BadError(f"no {kind}")
        return value

    return convert


def money(value: Any) -> Decimal:
    if isinstance(value, str) and re.fullmatch(
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?", value
    ):
        value = Decimal(value)
    if type(value) not in (int, Decimal):
        raise BadError("no decimal")
    if abs(Decimal(value)) >= 10**8 or Decimal(value) * 100 % 1 != 0:
        raise BadError("does not fit")
    return Decimal(value).quantize(Decimal("0.01"))


def moment(value: Any) -> datetime:
    try:
        if type(value) is int:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        form = re.fullmatch(
            r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d)(:\d\d)?"
            r"(?:(?<=:\d\d)(:\d\d)(\.\d{1,18})?)?(Z|[+-]\d\d(?::?\d\d)?)?)?",
            value,
            re.ASCII,
        )
        assert form is not None
        day, hour, minute, second, rest, zone = form.groups()
        clock = f"{hour or '00'}{minute or ':00'}{second or ':00'}{(rest or '')[:7]}"
        found = datetime.fromisoformat(f"{day}T{clock}+00:00")
        if zone not in (None, "Z"):
            digits = zone[1:].replace(":", "").ljust(4, "0")
            assert int(digits[:2]) < 24
            assert int(digits[2:]) < 60
            offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            found = found - offset if zone[0] == "+" else found + offset
        return found
    except (AssertionError, TypeError, ValueError, OverflowError):
        raise BadError("no timestamp") from None


def day(value: Any) -> date:
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise BadError("no date")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise BadError("no date") from None


def expected(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(type_):
        if not isinstance(value, dict):
            raise BadError("no object")
        return {each.name: expected(value.get(each.name), each.type) for each in type_}
    if pa.types.is_list(type_):
        if not isinstance(value, list):
            raise BadError("no array")
        return [expected(each, type_.value_type) for each in value]
    if pa.types.is_map(type_):
        if not isinstance(value, dict):
            raise BadError("no object")
        return [(name, expected(each, type_.item_type)) for name, each in value.items()]
    leaves: dict[pa.DataType, Callable[[Any], Any]] = {
        pa.int64(): whole(-(2**63), 2**63 - 1),
        pa.int32(): whole(-(2**31), 2**31 - 1),
        pa.float64(): real,
        pa.float32(): single,
        pa.string(): exactly(str),
        pa.bool_(): exactly(bool),
        pa.decimal128(10, 2): money,
        TIMESTAMP: moment,
        pa.date32(): day,
    }
    return leaves[type_](value)


def oracle(values: list[bytes | None], schema: pa.Schema) -> tuple[list[Any], list[int]]:
    rows, bad = [], []
    type_ = pa.struct(list(schema))
    for row, value in enumerate(values):
        try:
            found = None if value is None else expected(read(value), type_)
            rows.append((row, found or dict.fromkeys(schema.names)))
        except BadError:
            bad.append(row)
    return rows, bad


def plain(value: Any) -> Any:
    """The same value the same way: times in one zone object, objects in one order."""
    if isinstance(value, dict):
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.astimezone(UTC) if isinstance(value, datetime) else value


# --- what is put in

TIMES = st.one_of(
    st.datetimes().map(lambda found: found.isoformat()),
    st.datetimes().map(lambda found: found.isoformat(sep=" ") + "Z"),
    st.integers(-(10**15), 10**15),
    st.sampled_from(
        [
            "2024-01-01",
            "2024-01-01T00",
            "2024-01-01T10:20+0130",
            "2024-01-01T00:00:00.123456789Z",
            "0000-01-01",
            "2024-02-30",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01",
            "2024-01-01T24:00:00",
            "2024-01-01T00:00:60",
            "20240101",
            "2024-01-01T00:00:00+24:00",
            "2024-01-01T00:00:00z",
            "1969-12-31T23:59:59.9999999Z",
            "",
            "2024-01-01T",
            "12:00",
        ]
    ),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**33), 2**33),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=5),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    TIMES,
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["q", "r", "z", "new"]), inner, max_size=3),
    ),
    max_leaves=5,
)
FITTING = {
    "a": st.integers(-(2**63), 2**63 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "d": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**70), 2**70)),
    "s": st.text(max_size=8),
    "b": st.booleans(),
    "x": st.integers(-999_999_999, 999_999_999).map(lambda cents: cents / 100),
    "t": TIMES,
    "y": st.dates().map(lambda found: found.isoformat()),
    "o": st.fixed_dictionaries(
        {}, optional={"q": st.integers(0, 9), "r": st.lists(st.text(max_size=3), max_size=2)}
    ),
    "l": st.lists(st.fixed_dictionaries({"z": st.floats(0, 1)}), max_size=2),
}
SURE_DOCUMENT = st.fixed_dictionaries(
    {},
    optional={**FITTING, "t": st.datetimes().map(lambda found: found.isoformat() + "Z")},
)
FITTING_DOCUMENT = st.fixed_dictionaries({}, optional=FITTING)
ANY_DOCUMENT = st.dictionaries(st.sampled_from([*FITTING, "m", "new"]), ANYTHING, max_size=4)
SPLICES = st.sampled_from(
    [
        b"\n",
        b"\0",
        b'"',
        b"}",
        b"{",
        b"]",
        b",",
        b":",
        b"\xff",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"NaN",
        b'}{"v":',
        b'}\n{"v":',
        b',"v":1',
        b',"w":1',
        b"}}",
        b" ",
        b"\t",
        b"-",
        b"0",
        b"1e999",
        b".",
        b"\xef\xbb\xbf",
        b"\\",
        b"\\u0061",
        b"[" * 120,
        b"/**/",
        b"Infinity",
        b'"a":1,',
        b"null",
    ]
)


@st.composite
def corrupted(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    text = draw(texts)
    for _ in range(draw(st.integers(1, 2))):
        first = draw(st.integers(0, len(text)))
        end = draw(st.sampled_from([first, first, min(first + 1, len(text)), len(text)]))
        text = text[:first] + draw(SPLICES) + text[end:]
    return text


def encodings(document: Any) -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        [
            json.dumps(document).encode(),
            json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"),
            json.dumps(document, indent=1).encode(),
        ]
    )


encoded = st.one_of(FITTING_DOCUMENT, ANY_DOCUMENT).flatmap(encodings)
sure = SURE_DOCUMENT.map(lambda document: json.dumps(document).encode())
fitting = FITTING_DOCUMENT.map(lambda document: json.dumps(document).encode())
WHOLE_VALUES = st.sampled_from([b"", b"null", b"1", b"[]", b"{}", b'"x"', b" ", b"{}{}", b"true"])
VALUES = st.lists(
    st.one_of(
        fitting,
        fitting,
        encoded,
        corrupted(encoded),
        WHOLE_VALUES,
        st.binary(max_size=6),
        st.none(),
    ),
    max_size=12,
)

NUMBER = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 10**38]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.5, 1e20, 1e38]),
)
NUMBERS = st.fixed_dictionaries(
    {},
    optional={
        "n": NUMBER,
        "list": st.lists(NUMBER, max_size=2),
        "object": st.dictionaries(st.sampled_from("qr"), NUMBER, max_size=2),
    },
).flatmap(encodings)
"""JSON values with numbers only, of any size."""

# --- for columns without anything inside

SHORT_FRACTIONS = st.decimals(-(10**6), 10**6, places=3).map(float)
SIMPLE_FITTING = {name: FITTING[name] for name in "aidsbty"} | {
    "d": st.one_of(
        FITTING["d"], SHORT_FRACTIONS, st.sampled_from([0.0, -0.0, 1e22, 1e-22, 5e-324])
    ),
    "f": st.one_of(SHORT_FRACTIONS, st.floats(width=32, allow_nan=False), FITTING["d"]),
}
SIMPLE_SURE = SIMPLE_FITTING | {
    "a": st.integers(-(2**63) + 1, 2**63 - 1),
    "d": st.one_of(SHORT_FRACTIONS, st.integers(-(2**53), 2**53)),
    "t": st.one_of(
        st.datetimes().map(lambda found: found.isoformat() + "Z"),
        st.datetimes()
        .filter(lambda found: found.year > 1)
        .map(lambda found: f"{found.isoformat(' ')}+05:30"),
        st.dates().map(lambda found: found.isoformat()),
        st.integers(-(10**13), 10**13),
    ),
    "f": SHORT_FRACTIONS,
}
simple = st.one_of(
    st.fixed_dictionaries({}, optional=SIMPLE_FITTING),
    st.dictionaries(st.sampled_from(list(SIMPLE_FITTING)), LEAVES, max_size=4),
).flatmap(encodings)
simple_sure = st.fixed_dictionaries({}, optional=SIMPLE_SURE).flatmap(encodings)
SIMPLE_VALUES = st.lists(
    st.one_of(simple_sure, simple, corrupted(simple_sure), encoded, WHOLE_VALUES, st.none()),
    max_size=12,
)
