"""A small HTTP/1.1 server for health and metrics, on a port of its own.

It answers GET and HEAD of a few fixed paths, and nothing else. What a stranger can cost is bounded:
the request's head by `HEAD_BYTES_MAX`, a silent or slow connection by `http.timeout.ms`, their
number by `http.connections.max`: one more takes the place of the one that has waited longest for a
request, so that silent ones keep no probe out. A body is never read: a request that has one ends
its connection.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from neve import runtime
from neve.serving.addresses import Address, parse_address, refused
from neve.serving.logs import Repeated
from neve.settings import HttpSettings, LogSettings

log = logging.getLogger("neve.serving.http")

HEAD_BYTES_MAX = 8 * 1024
WRITE_BYTES = 256 * 1024
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Page:
    """What a path answers."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN
    extra: tuple[tuple[str, str], ...] = ()


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


class _RefusedError(Exception):
    """The request is answered with this status, and its connection is closed."""

    def __init__(self, status: HTTPStatus, *extra: tuple[str, str]) -> None:
        super().__init__(status.phrase)
        self.page = Page(f"{status.phrase}\n".encode(), status, extra=extra)


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    keeps_alive: bool


class HttpServer:
    """The listening side. Use `start`, and `close` at the end."""

    def __init__(self, settings: HttpSettings, pages: Pages, complaints: Repeated) -> None:
        self._settings = settings
        self._complaints = complaints
        self._pages = pages
        self._connections = runtime.Tasks(on_failure=_tell_failure)
        self._silent: dict[asyncio.StreamWriter, None] = {}  # wait for a request, the oldest first
        self._server: asyncio.Server | None = None
        self.address = Address("", 0)

    @classmethod
    async def start(
        cls,
        settings: HttpSettings,
        pages: Pages,
        complaints: Repeated | None = None,
        *,
        any_port: bool = False,
    ) -> HttpServer:
        """Listen on `http.listen`; ListenError where that address cannot be had.

        With `any_port`, a port that another process has is replaced by a free one.
        """
        server = cls(settings, pages, complaints or Repeated(log, LogSettings()))
        wanted = parse_address("http.listen", settings.listen)
        try:
            await server._listen(wanted)
        except OSError as error:
            if not any_port or error.errno != errno.EADDRINUSE:
                raise refused("http.listen", wanted, error) from error
            await server._listen(Address(wanted.host, 0))
            log.warning(
                "another process has %s: health and metrics are at %s; set http.listen to choose",
                wanted,
                server.address,
            )
        return server

    async def _listen(self, where: Address) -> None:
        self._server = await asyncio.start_server(
            self._accept, where.host or None, where.port, limit=HEAD_BYTES_MAX
        )
        self.address = Address(where.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        await self._connections.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._settings.connections_max:
            dropped = next(iter(self._silent), writer)
            self._silent.pop(dropped, None)
            dropped.transport.abort()
            peer = writer.get_extra_info("peername") or ("a client that is gone",)
            reason = f"{len(self._connections)} connections are open (http.connections.max)"
            self._complaints.warning(peer[0], "http.connections.max", f"closed one: {reason}")
            if dropped is writer:
                return
        self._connections.start(self._serve(reader, writer), name="http")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # it went away, or was too slow: nobody is there to be told
        finally:
            self._silent.pop(writer, None)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # it takes nothing: closing would wait for it
            else:
                writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether another may follow."""
        with_body, goes_on = True, False
        try:
            self._silent[writer] = None
            async with self._in_time():
                head = await _read_head(reader)
            self._silent.pop(writer, None)
            request = _parsed(head)
            with_body, goes_on = request.method != "HEAD", request.keeps_alive
            page = await self._answer(request)
        except _RefusedError as refusal:
            page, goes_on = refusal.page, False
        writer.write(_head_of(page, keeps_alive=goes_on))
        body = memoryview(page.body if with_body else b"")
        for start in range(0, max(1, len(body)), WRITE_BYTES):
            writer.write(body[start : start + WRITE_BYTES])
            async with self._in_time():
                await writer.drain()
        return goes_on

    def _in_time(self) -> asyncio.Timeout:
        return runtime.deadline(self._settings.timeout_ms / 1000)

    async def _answer(self, request: _Request) -> Page:
        make = self._pages.get(request.path)
        if make is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        try:
            return await make()
        except Exception:
            log.exception("%s could not be answered", request.path)
            raise _RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR) from None


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None


def _parsed(head: bytes) -> _Request:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/"):
        raise _RefusedError(HTTPStatus.BAD_REQUEST)
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise _RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    fields = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon:
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        fields[name.strip().lower()] = value.strip().lower()
    wants_close = fields.get("connection") == "close" or version == "HTTP/1.0"
    # What follows would be taken for the next request.
    has_body = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
    return _Request(method, target.partition("?")[0], not wants_close and not has_body)


def _head_of(page: Page, *, keeps_alive: bool) -> bytes:
    fields = [
        ("Content-Type", page.content_type),
        ("Content-Length", str(len(page.body))),
        ("Cache-Control", "no-store"),
        ("Connection", "keep-alive" if keeps_alive else "close"),
        *page.extra,
    ]
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n{lines}\r\n".encode("latin-1")


def _tell_failure(failure: BaseException) -> None:
    log.error("a connection failed", exc_info=failure)
