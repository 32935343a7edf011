"""Records and their bytes as text."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from neve.bucket.model import Record

Encoding: TypeAlias = Literal["text", "base64"]
Shown: TypeAlias = str | dict[str, str] | None
_encoder = msgspec.json.Encoder()


def shown_as_text(data: bytes | None) -> Shown:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def shown_as_base64(data: bytes | None) -> Shown:
    return None if data is None else base64.b64encode(data).decode()


def record_line(record: Record, encoding: Encoding) -> bytes:
    """Return one record as a line of JSON."""
    shown = shown_as_text if encoding == "text" else shown_as_base64
    return (
        _encoder.encode(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": shown(record.key),
                "value": shown(record.value),
                "headers": [_header(key, value, shown) for key, value in record.headers],
            }
        )
        + b"\n"
    )


def _header(
    key: str | bytes, value: bytes | None, shown: Callable[[bytes | None], Shown]
) -> dict[str, Shown]:
    return {"key": key if isinstance(key, str) else shown_as_text(key), "value": shown(value)}
