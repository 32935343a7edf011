"""Output formats of `neve topic consume -f`, compiled into a list of functions.

| field | written as |
| --- | --- |
| `%t` `%p` `%o` | topic, partition, offset |
| `%k` `%v` | key, value: the bytes themselves, nothing if null |
| `%k{hex}` `%k{base64}` `%k{json}` | the same as text; as JSON, null stays null |
| `%T` `%K` `%V` `%H` | lengths of topic, key and value, -1 if null; the number of headers |
| `%d` `%d{iso}` | timestamp: milliseconds since 1970; ISO 8601 in UTC |
| `%h` `%h{%k=%v,}` | headers; each as JSON's key:value with a blank, or in its own format |
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from neve import runtime
from neve.bucket.model import Record
from neve.cli.format_syntax import Field, FormatSyntaxError, Token, parse
from neve.cli.record_json import text_or_base64

Renderer: TypeAlias = Callable[[Record], bytes]
_Header: TypeAlias = tuple[str | bytes, bytes | None]

_encode_json = msgspec.json.Encoder().encode
HEADERS_DEFAULT = "%k{json}:%v{json} "


def compile_format(text: str) -> Renderer:
    """Compile a format into a function from a record to bytes. Raises FormatSyntaxError."""
    try:
        parts = [_part(token) for token in parse(text)]
    except FormatSyntaxError as error:
        raise FormatSyntaxError(f"-f {text!r}: {error}") from None
    if len(parts) == 1:
        return parts[0]
    return lambda record: b"".join([part(record) for part in parts])


def _part(token: Token) -> Renderer:
    if isinstance(token, bytes):
        return lambda _: token
    if token.letter in _BYTES:
        take, shown = _BYTES[token.letter], _encoded(token)
        return lambda record: shown(take(record))
    if token.letter == "d":
        return _timestamp(token)
    if token.letter == "h":
        return _headers(token.modifier if token.modifier is not None else HEADERS_DEFAULT)
    if token.letter not in _PLAIN:
        raise FormatSyntaxError(f"{token} is not a field: use {_fields()}")
    if token.modifier is not None:
        raise FormatSyntaxError(f"{token}: %{token.letter} has no modifier: remove the braces")
    return _PLAIN[token.letter]


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_BYTES: dict[str, Callable[[Record], bytes | None]] = {
    "k": lambda record: record.key,
    "v": lambda record: record.value,
    "t": lambda record: record.topic.encode(),
}
_PLAIN: dict[str, Renderer] = {
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % len(record.topic.encode()),
    "K": lambda record: _length(record.key),
    "V": lambda record: _length(record.value),
    "H": lambda record: b"%d" % len(record.headers),
}


def _fields() -> str:
    return " ".join(f"%{letter}" for letter in [*_BYTES, *_PLAIN, "d", "h"])


_ENCODINGS: dict[str | None, Callable[[bytes | None], bytes]] = {
    None: lambda data: data or b"",
    "hex": lambda data: (data or b"").hex().encode(),
    "base64": lambda data: base64.b64encode(data or b""),
    "json": lambda data: _encode_json(text_or_base64(data)),
}


def _encoded(field: Field) -> Callable[[bytes | None], bytes]:
    try:
        return _ENCODINGS[field.modifier]
    except KeyError:
        raise FormatSyntaxError(
            f"{field}: the modifiers of %{field.letter} are {{hex}}, {{base64}} and {{json}}"
        ) from None


def _timestamp(field: Field) -> Renderer:
    if field.modifier in (None, "ms"):
        return lambda record: b"%d" % record.timestamp
    if field.modifier == "iso":
        return lambda record: iso_time(record.timestamp).encode()
    raise FormatSyntaxError(f"{field}: use %d (milliseconds) or %d{{iso}} for a timestamp")


def iso_time(timestamp_ms: int) -> str:
    """Format a timestamp in ISO 8601, with milliseconds, in UTC."""
    try:
        moment = runtime.wall_from_ms(timestamp_ms)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # a producer may send any timestamp, also one beyond the calendar
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- headers


def _headers(text: str) -> Renderer:
    parts = [_header_part(token) for token in parse(text)]

    def render(record: Record) -> bytes:
        return b"".join([part(header) for header in record.headers for part in parts])

    return render


def _header_part(token: Token) -> Callable[[_Header], bytes]:
    if isinstance(token, bytes):
        return lambda _: token
    if token.letter in "kv":
        shown = _encoded(token)
        if token.letter == "k":
            return lambda header: shown(_key_bytes(header[0]))
        return lambda header: shown(header[1])
    if token.letter in "KV" and token.modifier is None:
        if token.letter == "K":
            return lambda header: _length(_key_bytes(header[0]))
        return lambda header: _length(header[1])
    raise FormatSyntaxError(f"{token} is not a field of a header: use %k %v %K %V")


def _key_bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key
