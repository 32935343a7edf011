"""The envelope of heartbeats and of all series objects except WAL objects: magic, kind, checksum.

The payload is JSON with a fixed schema, so that any tool can read it, and no length in it can make
a reader allocate more than the object's size. The envelope adds what coordination needs: the
author's random id (which decides which writer won a number), the number and series of the object,
and a CRC-32C of the whole object. docs/contributors/format.md specifies the bytes.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.records.crc import crc32c

MAGIC = b"NVSR"
VERSION = 1
AUTHOR_BYTES = 16
# Of one number, checkpoint or run. A checkpoint of 10,000 topics has about 10 MiB.
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024

_HEADER = struct.Struct(">4sHHQI16sI")
_TRAILER = struct.Struct(">I")
OVERHEAD_BYTES = _HEADER.size + _TRAILER.size
ENVELOPE_BYTES_MAX = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES

T = TypeVar("T")


class Kind(enum.IntEnum):
    """The kind of a payload."""

    CLUSTER_RECORD = 1
    CLUSTER_CHECKPOINT = 2
    MANIFEST_RECORD = 3
    MANIFEST_CHECKPOINT = 4
    MANIFEST_RUN = 5
    WAL_CHECKPOINT = 6
    HEARTBEAT = 7
    WAL_STORE = 8
    STREAM_ENDS = 9


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every payload, and of every object inside one.

    Unknown fields are rejected, because they may change the meaning of the others.
    """


class Envelope(NamedTuple):
    """A checked envelope with its payload, which is still encoded as JSON."""

    kind: Kind
    number: int
    author: bytes
    payload: memoryview


def seal_envelope(
    kind: Kind, series_prefix: str, number: int, author: bytes, payload: object
) -> bytes:
    """Encode one object. `author` is the random id by which its writer recognises it."""
    body = msgspec.json.encode(payload)
    if len(body) > PAYLOAD_BYTES_MAX:
        raise InvalidError(
            f"{series_prefix}: a {kind.name} of {len(body)} bytes is above the bound "
            f"of {PAYLOAD_BYTES_MAX}"
        )
    series = crc32c(series_prefix.encode())
    head = _HEADER.pack(MAGIC, VERSION, kind, number, series, author, len(body))
    data = head + body
    return data + _TRAILER.pack(crc32c(data))


def open_envelope(
    data: bytes | memoryview, kind: Kind, series_prefix: str, number: int, key: str
) -> Envelope:
    """Decode an envelope and check everything that does not need the payload.

    Raises DamagedError, or UnsupportedError for a newer version.
    """
    view = memoryview(data)
    if len(view) < OVERHEAD_BYTES:
        raise DamagedError(key, f"{len(view)} bytes are too few for an envelope")
    magic, version, found_kind, found_number, series, author, length = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise DamagedError(key, f"it starts with {magic!r}, not {MAGIC!r}")
    if length > PAYLOAD_BYTES_MAX or len(view) != OVERHEAD_BYTES + length:
        raise DamagedError(key, f"it has {len(view)} bytes but states a payload of {length} bytes")
    (checksum,) = _TRAILER.unpack_from(view, len(view) - _TRAILER.size)
    if checksum != crc32c(view[: -_TRAILER.size]):
        raise DamagedError(key, "its checksum does not match")
    if version > VERSION:
        raise UnsupportedError(f"{key} has version {version}: a newer Neve wrote it, upgrade")
    if version != VERSION or found_kind != kind:
        raise DamagedError(
            key, f"it is a version {version} object of kind {found_kind}, not {kind}"
        )
    if found_number != number or series != crc32c(series_prefix.encode()):
        raise DamagedError(key, f"it was written as number {found_number} of another place")
    return Envelope(kind, number, author, view[_HEADER.size : _HEADER.size + length])


def decode_payload(envelope: Envelope, schema: type[T] | Any, key: str) -> T:
    """Decode the payload. Raises UnsupportedError for anything unknown, rather than skip it."""
    try:
        decoded: T = msgspec.json.decode(envelope.payload, type=schema)
    except msgspec.ValidationError as error:
        raise UnsupportedError(
            f"{key} holds what this version does not know ({error}): a newer Neve wrote it, upgrade"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(key, f"its payload is not JSON: {error}") from error
    return decoded
