"""Well-formed requests with odd content: what gets past the decoder and reaches the handlers."""

from __future__ import annotations

import random
from typing import Any

from neve.errors import NeveError
from neve.protocol.frames import decode_request_header
from neve.protocol.messages import APIS
from neve.protocol.schema import Field, Struct
from soak.recorded_traffic import GROUPS, TOPICS, frame_of

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
_STRINGS = (
    "",
    ".",
    "..",
    "/",
    "a/b",
    "no such thing",
    "\0",
    "é" * 60,
    "x" * 249,
    "x" * 250,
    "x" * 20_000,
    "__consumer_offsets",
    "retention.ms",
    "max.message.bytes",
    "-1",
    "NaN",
    *TOPICS,
    *GROUPS,
)


def odd(frame: bytes, chance: random.Random) -> bytes | None:
    """The request of a good frame with some fields changed; None where it cannot be written."""
    header = decode_request_header(memoryview(frame), 4)
    api, version = APIS[header.api_key], header.api_version
    try:
        request = api.Request.decode(memoryview(frame), version, header.end)
        for _ in range(chance.choice((1, 1, 2, 4))):
            _change(request, api.schema.request, version, api.Request, chance)
        return frame_of(api, version, request, header.client_id)
    except (NeveError, TypeError, AttributeError):
        return None


def _change(made: Any, struct: Struct, version: int, message: Any, chance: random.Random) -> None:
    """Walk down to some field, and change that."""
    fields = [each for each in struct.fields if version in each.versions]
    if not fields:
        return
    field = chance.choice(fields)
    value = getattr(made, field.name)
    if field.struct is not None and value and chance.random() < 0.8:
        inner = chance.choice(value) if field.array else value
        _change(inner, field.struct, version, message, chance)
    else:
        setattr(made, field.name, _odd_value(field, value, version, chance))


def _odd_value(field: Field, value: Any, version: int, chance: random.Random) -> Any:
    if version in field.nullable and chance.random() < 0.3:
        return None
    if field.array:
        drawn = chance.random()
        if drawn < 0.3 or not value:
            return []
        # Changed more than once, nested arrays would multiply.
        return value * (chance.choice((2, 2, 2, 3, 100)) if len(value) < 4 else 1)
    if field.struct is not None:
        return value
    return _odd_scalar(field.type, value, chance)


def _odd_scalar(kind: str, value: Any, chance: random.Random) -> Any:
    if kind in _BITS:
        most = 1 << _BITS[kind] - 1
        near = max(-most, min(most - 1, value + chance.choice((-1, 1, 1000))))
        return chance.choice((-most, most - 1, -1, -2, 0, 1, 2, 100, near, near))
    if kind in _UNSIGNED_BITS:
        return chance.choice((0, 1, (1 << _UNSIGNED_BITS[kind]) - 1))
    if kind == "bool":
        return not value
    if kind == "float64":
        return chance.choice((0.0, -1.0, float("inf"), float("nan")))
    if kind == "string":
        return chance.choice(_STRINGS)
    if kind == "uuid":
        return chance.choice((bytes(16), chance.randbytes(16)))
    data = bytes(value or b"")
    return chance.choice((b"", data + data, data[: len(data) // 2], chance.randbytes(100)))
