"""Answers of one connection, in the order of its requests.

A request takes its place when it is read; whatever finishes first, answers leave in that order.
"""

from __future__ import annotations

from typing import Any, Protocol

from neve.protocol.frames import response_frame
from neve.store.port import Buffer


class Answer(Protocol):
    """A place in the queue. `ready` says that `frame` may be called, once."""

    @property
    def ready(self) -> bool: ...

    def frame(self) -> list[Buffer]: ...


class PlainAnswer:
    """The answer of a handler that takes its time."""

    __slots__ = ("_api", "_correlation_id", "_response", "_version")

    def __init__(self, api: Any, version: int, correlation_id: int) -> None:
        self._api = api
        self._version = version
        self._correlation_id = correlation_id
        self._response: Any = None

    def complete(self, response: Any) -> None:
        self._response = response

    @property
    def ready(self) -> bool:
        return self._response is not None

    def frame(self) -> list[Buffer]:
        parts = self._api.Response.encode(self._response, self._version)
        return response_frame(self._api, self._version, self._correlation_id, parts)
