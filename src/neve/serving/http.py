"""A small HTTP/1.1 server for health checks and metrics.

It responds to GET and HEAD of a few fixed paths. Limits against misuse: `HEAD_BYTES_MAX` for a
request's head, `http.timeout.ms` for an idle or slow connection, `http.connections.max` for the
number of connections. At that number a new connection replaces the one that has been idle longest,
so that idle connections cannot block a health check. Bodies are not read: a request with a body
closes its connection.
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
    """The response for one path."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN
    extra: tuple[tuple[str, str], ...] = ()


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


class _RefusedError(Exception):
    """The server responds with this status and closes the connection."""

    def __init__(self, status: HTTPStatus, *extra: tuple[str, str]) -> None:
        super().__init__(status.phrase)
        self.page = Page(f"{status.phrase}\n".encode(), status, extra=extra)


@dataclass(frozen=True)
class _Request:
    method: str
    path: str
    keeps_alive: bool


class HttpServer:
    """The HTTP server. Create it with `start`; the caller must `close` it."""

    def __init__(self, settings: HttpSettings, pages: Pages, limited_log: Repeated) -> None:
        self._settings = settings
        self._limited_log = limited_log
        self._pages = pages
        self._connections = runtime.Tasks(on_failure=_log_failure)
        self._idle: dict[asyncio.StreamWriter, None] = {}  # the longest idle first
        self._server: asyncio.Server | None = None
        self.address = Address("", 0)

    @classmethod
    async def start(
        cls,
        settings: HttpSettings,
        pages: Pages,
        limited_log: Repeated | None = None,
        *,
        any_port: bool = False,
    ) -> HttpServer:
        """Listen on `http.listen`. Raises ListenError if that is impossible.

        With `any_port`, a port in use is replaced by a free one.
        """
        server = cls(settings, pages, limited_log or Repeated(log, LogSettings()))
        requested = parse_address("http.listen", settings.listen)
        try:
            await server._listen(requested)
        except OSError as error:
            if not any_port or error.errno != errno.EADDRINUSE:
                raise refused("http.listen", requested, error) from error
            await server._listen(Address(requested.host, 0))
            log.warning(
                "%s is in use: health and metrics are at %s; set http.listen to choose an address",
                requested,
                server.address,
            )
        return server

    async def _listen(self, where: Address) -> None:
        self._server = await asyncio.start_server(
            self._accept, where.host or None, where.port, limit=HEAD_BYTES_MAX
        )
        self.address = Address(where.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        await self._connections.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._settings.connections_max:
            dropped = next(iter(self._idle), writer)
            self._idle.pop(dropped, None)
            dropped.transport.abort()
            peer = writer.get_extra_info("peername") or ("a disconnected client",)
            reason = f"{len(self._connections)} connections are open (http.connections.max)"
            self._limited_log.warning(peer[0], "http.connections.max", f"closed one: {reason}")
            if dropped is writer:
                return
        self._connections.start(self._serve(reader, writer), name="http")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the client disconnected or was too slow
        finally:
            self._idle.pop(writer, None)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # the client does not read: close() would wait for it
            else:
                writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Handle one request. Returns whether the connection stays open."""
        with_body, keeps_alive = True, False
        try:
            self._idle[writer] = None
            async with self._timeout():
                head = await _read_head(reader)
            self._idle.pop(writer, None)
            request = _parsed(head)
            with_body, keeps_alive = request.method != "HEAD", request.keeps_alive
            page = await self._page_for(request)
        except _RefusedError as refusal:
            page, keeps_alive = refusal.page, False
        writer.write(_head_of(page, keeps_alive=keeps_alive))
        body = memoryview(page.body if with_body else b"")
        for start in range(0, max(1, len(body)), WRITE_BYTES):
            writer.write(body[start : start + WRITE_BYTES])
            async with self._timeout():
                await writer.drain()
        return keeps_alive

    def _timeout(self) -> asyncio.Timeout:
        return runtime.deadline(self._settings.timeout_ms / 1000)

    async def _page_for(self, request: _Request) -> Page:
        make = self._pages.get(request.path)
        if make is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET, HEAD"))
        try:
            return await make()
        except Exception:
            log.exception("GET %s failed", request.path)
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
    # The body is not read, and would be parsed as the next request.
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


def _log_failure(failure: BaseException) -> None:
    log.error("an HTTP connection failed", exc_info=failure)
