"""Input formats of `neve topic produce`.

A format such as `%k\\t%v\\n` reads what `consume -f` writes. `%k` and `%v` end at the text that
follows them, the last one at the end of the record. If `%K` and `%V` precede them, they have that
many bytes (-1: null) and may contain anything: what `consume -f '%K %V %k%v'` wrote is read back
unchanged. `%p` is the partition, `%d` the timestamp in milliseconds. `{hex}`, `{base64}` and
`{json}` decode. A format that ends in a field without a length ends with the line. The format
`json` reads what `consume --json` writes.

`RECORD_BYTES_MAX` bounds the memory for any input.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from neve.cli.format_syntax import Field, FormatSyntaxError, Token, parse
from neve.errors import InvalidError

RECORD_BYTES_MAX = 256 * 1024 * 1024
"""Without it, an input that lacks the delimiter would be read into memory as a whole."""

READ_BYTES = 256 * 1024

Read: TypeAlias = Callable[[int], bytes]


class InputError(InvalidError):
    """The input does not match the format."""


class Row(NamedTuple):
    """One record to send."""

    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def rows(text: str, read: Read) -> Iterator[Row]:
    """Yield the records of an input. `read(n)` returns up to n bytes, none at the end."""
    if text == "json":
        return _json_rows(_Input(read))
    try:
        tokens = _checked(parse(text))
    except FormatSyntaxError as error:
        raise FormatSyntaxError(f"-f {text!r}: {error}") from None
    reader = _sized if any(isinstance(p, Field) and p.letter in "KV" for p in tokens) else _lines
    return reader(tokens, _Input(read))


def _checked(tokens: list[Token]) -> list[Token]:
    seen: list[str] = []
    for position, token in enumerate(tokens):
        if isinstance(token, bytes):
            continue
        _check_field(token, seen)
        seen.append(token.letter)
        if _open_ended(token, seen) and position + 1 < len(tokens):
            behind = tokens[position + 1]
            if isinstance(behind, Field):
                raise FormatSyntaxError(f"put a delimiter between {token} and {behind}")
    if not {"k", "v"} & set(seen):
        raise FormatSyntaxError("the format has neither %k nor %v: add one")
    last = tokens[-1]
    if isinstance(last, Field) and _open_ended(last, seen):
        return [*tokens, b"\n"]
    return tokens


def _open_ended(field: Field, seen: Sequence[str]) -> bool:
    """Return whether the field ends at the text that follows it."""
    return field.letter.upper() not in seen or field.letter in "pdKV"


def _check_field(field: Field, seen: Sequence[str]) -> None:
    if field.letter not in "kvpdKV":
        raise FormatSyntaxError(f"{field} is not an input field: use %k %v %p %d %K %V")
    if field.letter in seen:
        raise FormatSyntaxError(f"%{field.letter} occurs twice: remove one")
    if field.letter in "KV" and field.letter.lower() in seen:
        raise FormatSyntaxError(f"{field} must come before %{field.letter.lower()}")
    allowed = (None, "hex", "base64", "json") if field.letter in "kv" else (None,)
    if field.modifier not in allowed:
        raise FormatSyntaxError(f"{field}: unknown modifier in braces")
    if field.modifier is not None and field.letter.upper() in seen:
        raise FormatSyntaxError(f"{field} has a length and cannot be decoded: remove the braces")


# --- the input


class _Input:
    """Buffered input: bytes that were read and not yet consumed."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._held = bytearray()
        self._at = 0
        self._ended = False
        self.record = 0

    def wrong(self, reason: str) -> InputError:
        return InputError(f"record {self.record} of the input: {reason}")

    def more(self) -> bool:
        """Return whether any byte is left."""
        return self._at < len(self._held) or self._fill()

    def _fill(self) -> bool:
        if self._ended:
            return False
        if self._at:
            del self._held[: self._at]
            self._at = 0
        if len(self._held) > RECORD_BYTES_MAX:
            raise self.wrong(f"longer than {RECORD_BYTES_MAX} bytes: check the format")
        data = self._read(READ_BYTES)
        self._ended = not data
        self._held += data
        return bool(data)

    def up_to(self, delimiter: bytes) -> bytes | None:
        """Return the bytes before a delimiter and skip it; None if there is no delimiter."""
        looked = self._at
        while (found := self._held.find(delimiter, looked)) < 0:
            seen = len(self._held) - self._at
            if not self._fill():
                return None
            looked = max(0, seen - len(delimiter) + 1)  # a delimiter may arrive in two parts
        data = bytes(self._held[self._at : found])
        self._at = found + len(delimiter)
        return data

    def rest(self) -> bytes:
        """Return all buffered bytes, at the end of the input."""
        data = bytes(self._held[self._at :])
        self._at = len(self._held)
        return data

    def exactly(self, count: int) -> bytes:
        while len(self._held) - self._at < count:
            if not self._fill():
                raise self.wrong(f"the input ends before {count} bytes were read")
        data = bytes(self._held[self._at : self._at + count])
        self._at += count
        return data


# --- records that end with a text


def _lines(tokens: Sequence[Token], source: _Input) -> Iterator[Row]:
    end = tokens[-1]
    assert isinstance(end, bytes)
    inner = tokens[:-1]
    only = inner[0] if len(inner) == 1 else None
    plain = only == Field("v")
    while source.more():
        source.record += 1
        data = source.up_to(end)
        if data is None:
            data = source.rest()  # the last line may lack its delimiter
        yield Row(value=data) if plain else _split(inner, data, source)


def _split(tokens: Sequence[Token], data: bytes, source: _Input) -> Row:
    row, at = Row(), 0
    for number, token in enumerate(tokens):
        if isinstance(token, bytes):
            if not data.startswith(token, at):
                raise source.wrong(f"{_shown(token)} is missing")
            at += len(token)
            continue
        behind = tokens[number + 1] if number + 1 < len(tokens) else None
        end = len(data) if behind is None else data.find(_literal(behind), at)
        if end < 0:
            raise source.wrong(f"no {_shown(_literal(behind))} follows {token}")
        row = _with(row, token, data[at:end], source)
        at = end
    return row


def _literal(token: Token | None) -> bytes:
    assert isinstance(token, bytes)
    return token


def _shown(data: bytes) -> str:
    return repr(data)[1:]


# --- records with the lengths of their fields


def _sized(tokens: Sequence[Token], source: _Input) -> Iterator[Row]:
    while source.more():
        source.record += 1
        yield _sized_row(tokens, source)


def _sized_row(tokens: Sequence[Token], source: _Input) -> Row:
    row = Row()
    lengths: dict[str, int] = {}
    passed = False  # this text was already consumed as the delimiter of the previous field
    for number, token in enumerate(tokens):
        if isinstance(token, bytes):
            if not passed and source.exactly(len(token)) != token:
                raise source.wrong(f"{_shown(token)} is missing")
            passed = False
        elif token.letter in lengths:
            length = lengths[token.letter]
            data = None if length < 0 else source.exactly(length)
            row = row if data is None else _with(row, token, data, source)
        else:
            found = source.up_to(_literal(tokens[number + 1]))
            if found is None:
                raise source.wrong(f"the input ends within {token}")
            passed = True
            if token.letter in "KV":
                lengths[token.letter.lower()] = _number(token, found, source, least=-1)
            else:
                row = _with(row, token, found, source)
    return row


def _with(row: Row, field: Field, data: bytes, source: _Input) -> Row:
    if field.letter == "p":
        return row._replace(partition=_number(field, data, source, least=0))
    if field.letter == "d":
        return row._replace(timestamp_ms=_number(field, data, source, least=0))
    decoded = _decoded(field, data, source)
    return row._replace(key=decoded) if field.letter == "k" else row._replace(value=decoded)


def _number(field: Field, data: bytes, source: _Input, *, least: int) -> int:
    number = int(data) if re.fullmatch(rb"-?[0-9]{1,19}", data) else None
    if number is None or number < least or number > 2**63 - 1:
        raise source.wrong(f"{field} must be an integer >= {least}, not {_shown(data[:40])}")
    if field.letter in "KV" and number > RECORD_BYTES_MAX:
        raise source.wrong(f"{field} is {number}, more than {RECORD_BYTES_MAX} bytes")
    return number


def _decoded(field: Field, data: bytes, source: _Input) -> bytes | None:
    try:
        match field.modifier:
            case "hex":
                return bytes.fromhex(data.decode())
            case "base64":
                return base64.b64decode(data, validate=True)
            case "json":
                return _bytes_of(msgspec.json.decode(data, type=_JsonBytes))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise source.wrong(f"{_shown(data[:40])} is not valid {field.modifier}") from None
    return data


# --- JSON


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


_JsonBytes: TypeAlias = str | _Base64 | None


class _JsonHeader(msgspec.Struct):
    key: str
    value: _JsonBytes = None


class _JsonRecord(msgspec.Struct):
    """A line that `consume --json` wrote, without topic, partition and offset: they are ignored."""

    key: _JsonBytes = None
    value: _JsonBytes = None
    timestamp: int | None = None
    headers: list[_JsonHeader] = []


def _bytes_of(given: _JsonBytes) -> bytes | None:
    if isinstance(given, _Base64):
        return base64.b64decode(given.base64, validate=True)
    return None if given is None else given.encode()


def _json_rows(source: _Input) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(_JsonRecord)
    while source.more():
        source.record += 1
        line = source.up_to(b"\n")
        line = source.rest() if line is None else line
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
            headers = [(each.key, _bytes_of(each.value)) for each in record.headers]
            key, value = _bytes_of(record.key), _bytes_of(record.value)
        except (ValueError, msgspec.MsgspecError) as error:
            raise source.wrong(f"not a record in the format of `consume --json`: {error}") from None
        yield Row(key, value, None, record.timestamp, headers)
