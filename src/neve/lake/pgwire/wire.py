"""Encodes and decodes the messages of PostgreSQL's protocol 3.0.

Pure. For any input, decoding returns a value or raises SqlError. It needs no more memory than the
message itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neve.lake.pgwire.sqlstate import PROTOCOL_VIOLATION, SqlError, fatal

HEADER_BYTES = 5
LENGTH_BYTES = 4
PROTOCOL_3_0 = 3 << 16
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104
TEXT, BINARY = 0, 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FIELD = struct.Struct(">ihihih")
_HEADER = struct.Struct(">ci")


def protocol_violation(what: str) -> SqlError:
    return fatal(PROTOCOL_VIOLATION, what)


def body_length(header: bytes, bytes_max: int) -> tuple[bytes, int]:
    """Decode a message header. Returns the kind and the size of the body. Checks the size."""
    kind, length = _HEADER.unpack(header)
    if not LENGTH_BYTES <= length <= bytes_max + LENGTH_BYTES:
        raise protocol_violation(
            f"invalid message length {length}; accepted: {LENGTH_BYTES} to "
            f"{bytes_max + LENGTH_BYTES}"
        )
    return kind, length - LENGTH_BYTES


def startup_length(header: bytes, bytes_max: int) -> int:
    (length,) = _INT32.unpack(header)
    if not 8 <= length <= bytes_max:
        raise protocol_violation("invalid length of startup packet")
    return int(length) - LENGTH_BYTES


class Fields:
    """Reads the fields of a message body. Raises SqlError at its end."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._body):
            raise protocol_violation("a message ends before its last field")
        taken = self._body[self._at : end]
        self._at = end
        return taken

    def int16(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def uint32(self) -> int:
        return self.int32() & 0xFFFFFFFF

    def byte(self) -> bytes:
        return self.take(1)

    def count(self, least_bytes_each: int) -> int:
        """Read the number of items that follow. Raises SqlError if they cannot fit in the body."""
        count = self.int16() & 0xFFFF
        if count * least_bytes_each > len(self._body) - self._at:
            raise protocol_violation("a message has fewer fields than it announces")
        return count

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise protocol_violation("a string in a message has no terminator")
        raw = self.take(end - self._at)
        self._at += 1
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise SqlError("22021", 'invalid byte sequence for encoding "UTF8"') from error

    def value(self) -> bytes | None:
        """Read a value with its length in front; -1 is NULL."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def rest(self) -> bytes:
        return self.take(len(self._body) - self._at)

    @property
    def at_end(self) -> bool:
        return self._at == len(self._body)

    def finish(self) -> None:
        if not self.at_end:
            raise protocol_violation("a message has extra bytes after its last field")


# --- messages of the client


@dataclass(frozen=True)
class Parse:
    name: str
    query: str
    types: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True)
class Target:
    """The target of Describe and Close: a statement (`S`) or portal (`P`)."""

    kind: bytes
    name: str


@dataclass(frozen=True)
class Execute:
    portal: str
    rows_max: int


def parse_startup(body: bytes) -> dict[str, str]:
    """Decode the parameters of a startup message, after the version."""
    fields = Fields(body)
    found: dict[str, str] = {}
    while name := fields.text():
        found[name] = fields.text()
    fields.finish()
    return found


def parse_query(body: bytes) -> str:
    fields = Fields(body)
    text = fields.text()
    fields.finish()
    return text


def parse_parse(body: bytes) -> Parse:
    fields = Fields(body)
    name, query = fields.text(), fields.text()
    types = tuple(fields.uint32() for _ in range(fields.count(4)))
    fields.finish()
    return Parse(name, query, types)


def parse_bind(body: bytes) -> Bind:
    fields = Fields(body)
    portal, statement = fields.text(), fields.text()
    formats = tuple(_format(fields) for _ in range(fields.count(2)))
    values = tuple(fields.value() for _ in range(fields.count(4)))
    result_formats = tuple(_format(fields) for _ in range(fields.count(2)))
    fields.finish()
    if len(formats) not in (0, 1, len(values)):
        raise SqlError(
            PROTOCOL_VIOLATION,
            f"bind message has {len(formats)} parameter formats but {len(values)} parameters",
        )
    return Bind(portal, statement, formats, values, result_formats)


def _format(fields: Fields) -> int:
    code = fields.int16()
    if code not in (TEXT, BINARY):
        raise SqlError("22023", f"unsupported format code: {code}")
    return code


def parse_target(body: bytes) -> Target:
    fields = Fields(body)
    kind, name = fields.byte(), fields.text()
    fields.finish()
    if kind not in (b"S", b"P"):
        raise protocol_violation(
            f"invalid target {kind!r} of Describe or Close; accepted: S (statement), P (portal)"
        )
    return Target(kind, name)


def parse_execute(body: bytes) -> Execute:
    fields = Fields(body)
    portal, rows_max = fields.text(), fields.int32()
    fields.finish()
    return Execute(portal, max(0, rows_max))


def parse_sasl_initial(body: bytes) -> tuple[str, bytes]:
    fields = Fields(body)
    mechanism, first = fields.text(), fields.value()
    fields.finish()
    return mechanism, first or b""


# --- messages of the server


def message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + _INT32.pack(len(body) + LENGTH_BYTES) + body


def cstring(text: str) -> bytes:
    return text.replace("\0", "").encode(errors="replace") + b"\0"


def authentication(code: int, data: bytes = b"") -> bytes:
    return message(b"R", _INT32.pack(code), data)


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", cstring(name), cstring(value))


def backend_key(process: int, secret: int) -> bytes:
    return message(b"K", struct.pack(">II", process, secret))


def ready(status: bytes) -> bytes:
    return message(b"Z", status)


def negotiate_version(options: Sequence[str]) -> bytes:
    named = b"".join(cstring(option) for option in options)
    return message(b"v", _INT32.pack(PROTOCOL_3_0), _INT32.pack(len(options)), named)


def error_or_notice(error: SqlError) -> bytes:
    """Encode an ErrorResponse, or a NoticeResponse if the severity is below ERROR."""
    kind = b"E" if error.severity in ("ERROR", "FATAL", "PANIC") else b"N"
    fields = [("S", error.severity), ("V", error.severity), ("C", error.code)]
    fields += [("M", error.message), ("D", error.detail), ("H", error.hint)]
    fields += [("P", str(error.position) if error.position else "")]
    return message(kind, *(tag.encode() + cstring(text) for tag, text in fields if text), b"\0")


@dataclass(frozen=True)
class ColumnDescription:
    """One column of a RowDescription."""

    name: str
    type_oid: int
    size: int
    modifier: int = -1


def row_description(columns: Sequence[ColumnDescription], formats: Iterable[int]) -> bytes:
    parts = [_INT16.pack(len(columns))]
    for column, form in zip(columns, formats, strict=True):
        about = _FIELD.pack(0, 0, _signed(column.type_oid), column.size, column.modifier, form)
        parts += [cstring(column.name), about]
    return message(b"T", *parts)


def _signed(oid: int) -> int:
    return oid - (1 << 32) if oid >= 1 << 31 else oid


def parameter_description(types: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f">H{len(types)}I", len(types), *types))


def command_complete(tag: str) -> bytes:
    return message(b"C", cstring(tag))


NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
PORTAL_SUSPENDED = message(b"s")
