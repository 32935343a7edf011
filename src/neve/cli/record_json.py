"""Records as lines of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from neve.bucket.model import Record

Encoding: TypeAlias = Literal["text", "base64"]
JsonBytes: TypeAlias = str | dict[str, str] | None
_encoder = msgspec.json.Encoder()


def text_or_base64(data: bytes | None) -> JsonBytes:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def base64_text(data: bytes | None) -> JsonBytes:
    return None if data is None else base64.b64encode(data).decode()


def record_line(record: Record, encoding: Encoding) -> bytes:
    """Return one record as a line of JSON."""
    convert = text_or_base64 if encoding == "text" else base64_text
    return (
        _encoder.encode(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": convert(record.key),
                "value": convert(record.value),
                "headers": [_header(key, value, convert) for key, value in record.headers],
            }
        )
        + b"\n"
    )


def _header(
    key: str | bytes, value: bytes | None, convert: Callable[[bytes | None], JsonBytes]
) -> dict[str, JsonBytes]:
    return {"key": key if isinstance(key, str) else text_or_base64(key), "value": convert(value)}
