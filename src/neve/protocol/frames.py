"""Encode and decode frames: the length and the header around a message.

A frame is its length (int32, not counting itself), a header, and a message. A flexible version of a
message has a flexible header. The response of ApiVersions always has the oldest header, so that
every client can read it.
"""

from __future__ import annotations

import struct

import msgspec

from neve.protocol.compiler import AnyApi
from neve.protocol.errors import MalformedError
from neve.protocol.messages import APIS
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.protocol.schema import NEVER
from neve.protocol.wire import REQUEST_ITEMS_MAX, Buffer, bad_length, cut_short, skip_tags

_REQUEST_START = struct.Struct(">hhih")
_RESPONSE_START = struct.Struct(">ii")
_FLEXIBLE_RESPONSE_START = struct.Struct(">iix")
_FLEXIBLE_FROM = {key: api.flexible_from for key, api in APIS.items()}


class RequestHeader(msgspec.Struct):
    """The header of a request. Its message begins at `end`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def decode_request_header(data: memoryview, position: int = 0) -> RequestHeader:
    """Decode the header of a request. Its frame, without the length, begins at `position`.

    Raises MalformedError. An unknown API or version is not an error here.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_START.unpack_from(data, position)
        at = position + 10
        client_id = None
        if length >= 0:
            stop = at + length
            if stop > len(data):
                raise cut_short("client_id", at, length, len(data))
            client_id = data[at:stop].tobytes().decode()
            at = stop
        elif length != -1:
            raise bad_length("client_id", at, length)
        if version >= _FLEXIBLE_FROM.get(api_key, NEVER):
            if data[at]:
                at, _ = skip_tags(data, at, REQUEST_ITEMS_MAX)
            else:
                at += 1
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedError(f"the header of a request cannot be decoded: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def response_frame(
    api: AnyApi, version: int, correlation_id: int, body_parts: list[Buffer]
) -> list[Buffer]:
    """Return a complete response with length and header, in parts to be sent in this order."""
    size = 4 + (len(body_parts[0]) if len(body_parts) == 1 else sum(map(len, body_parts)))
    if version >= api.flexible_from and api is not API_VERSIONS:
        start = _FLEXIBLE_RESPONSE_START.pack(size + 1, correlation_id)
    else:
        start = _RESPONSE_START.pack(size, correlation_id)
    return _joined(start, body_parts)


def request_frame(
    api: AnyApi, version: int, correlation_id: int, client_id: str | None, body_parts: list[Buffer]
) -> list[Buffer]:
    """Return a complete request with length and header, in parts to be sent in this order."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = _REQUEST_START.pack(api.key, version, correlation_id, length) + name
    if version >= api.flexible_from:
        header += b"\0"
    size = len(header) + sum(map(len, body_parts))
    return _joined(struct.pack(">i", size) + header, body_parts)


def decode_response_header(
    api: AnyApi, version: int, data: memoryview, position: int = 0
) -> tuple[int, int]:
    """Return the correlation id of a response, and the position of its message."""
    try:
        (correlation_id,) = struct.unpack_from(">i", data, position)
        at = position + 4
        if version >= api.flexible_from and api is not API_VERSIONS:
            at, _ = skip_tags(data, at, len(data))
    except (struct.error, IndexError) as error:
        raise MalformedError(f"the header of a response cannot be decoded: {error}") from error
    return correlation_id, at


def _joined(start: bytes, body_parts: list[Buffer]) -> list[Buffer]:
    """Join the header to the first part of a message, which is small."""
    if not body_parts:
        return [start]
    if len(body_parts) == 1:
        return [start + body_parts[0]]
    return [start + body_parts[0], *body_parts[1:]]
