"""What is known of a request beside its content."""

from __future__ import annotations

from typing import NamedTuple


class Context(NamedTuple):
    """The version of a request, and the client that sent it."""

    api_version: int
    client_id: str | None
    peer: str
    is_reader: bool = False
    """Whether the client has read the last large response, and all before it."""
