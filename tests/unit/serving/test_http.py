"""The small HTTP server: what it answers, what it refuses, and what it does not wait for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest

from neve.serving.addresses import ListenError
from neve.serving.http import HEAD_BYTES_MAX, HttpServer, Page
from neve.settings import HttpSettings

LARGE = b"0123456789abcdef" * (1 << 17)  # 2 MiB


async def hello() -> Page:
    return Page(b"hello\n")


async def large() -> Page:
    return Page(LARGE)


async def broken() -> Page:
    raise ValueError("a mistake with a secret in it")


PAGES = {"/hello": hello, "/large": large, "/broken": broken}


@contextlib.asynccontextmanager
async def serving(connections_max: int = 8, timeout_ms: int = 5_000) -> AsyncIterator[HttpServer]:
    settings = HttpSettings(
        listen="127.0.0.1:0", connections_max=connections_max, timeout_ms=timeout_ms
    )
    server = await HttpServer.start(settings, PAGES)
    try:
        yield server
    finally:
        await server.close()


async def exchange(server: HttpServer, request: bytes) -> bytes:
    """Everything the server says until it closes, or has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(-1), 5)
    finally:
        writer.close()


def request(path: str, method: str = "GET", *fields: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_a_page_is_answered_with_its_length() -> None:
    async with serving() as server:
        answer = await exchange(server, request("/hello?from=somewhere"))
    assert status(answer) == 200
    assert b"Content-Length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\nhello\n")


async def test_a_head_has_no_body() -> None:
    async with serving() as server:
        answer = await exchange(server, request("/hello", "HEAD"))
    assert b"Content-Length: 6\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_a_large_page_arrives_whole() -> None:
    async with serving() as server:
        answer = await exchange(server, request("/large"))
    assert answer.partition(b"\r\n\r\n")[2] == LARGE


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        for _ in range(3):
            writer.write(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(6) == b"hello\n"
        writer.close()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (request("/nothing"), 404),
        (request("/nothing", "POST"), 404),
        (request("/hello", "POST"), 405),
        (request("/hello", "DELETE"), 405),
        (b"GET /hello\r\n\r\n", 400),
        (b"GET hello HTTP/1.1\r\n\r\n", 400),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03\r\n\r\n", 400),
        (request("/hello", "GET", "no colon here"), 400),
        (b"GET /hello HTTP/2.0\r\n\r\n", 505),
        (b"GET /hello HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_what_is_refused_is_told_and_closed(sent: bytes, expected: int) -> None:
    async with serving() as server:
        answer = await exchange(server, sent)
        assert status(answer) == expected
        assert b"Connection: close\r\n" in answer
        assert status(await exchange(server, request("/hello"))) == 200


async def test_a_refused_method_is_told_which_there_are() -> None:
    async with serving() as server:
        assert b"Allow: GET, HEAD\r\n" in await exchange(server, request("/hello", "PUT"))


async def test_a_body_is_not_taken_for_the_next_request() -> None:
    sent = (
        b"GET /hello HTTP/1.1\r\nContent-Length: 37\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    async with serving() as server:
        assert (await exchange(server, sent)).count(b"HTTP/1.1 ") == 1


async def test_a_mistake_of_ours_is_a_500_that_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        answer = await exchange(server, request("/broken"))
    assert status(answer) == 500
    assert b"secret" not in answer
    assert "GET /broken failed" in caplog.text


async def test_a_silent_connection_is_closed_in_time() -> None:
    async with serving(timeout_ms=50) as server:
        for sent in (b"", b"GET /hel"):
            started = time.monotonic()
            assert await exchange(server, sent) == b""
            assert time.monotonic() - started < 2


async def test_one_connection_too_many_takes_the_place_of_the_longest_silent_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Health is answered however many connections do nothing."""
    async with serving(connections_max=2) as server:
        where = ("127.0.0.1", server.address.port)
        first, first_writer = await asyncio.open_connection(*where)
        second, writer = await asyncio.open_connection(*where)
        await asyncio.sleep(0.02)
        assert status(await exchange(server, request("/hello"))) == 200
        with contextlib.suppress(ConnectionError):
            assert await first.read() == b""
        first_writer.close()
        writer.write(request("/hello"))
        assert (await second.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    (line,) = caplog.messages
    assert line == "127.0.0.1: closed one: 2 connections are open (http.connections.max)"


async def test_a_client_that_does_not_read_is_let_go_in_time() -> None:
    async with serving(timeout_ms=50) as server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, tuple(server.address))
            await asyncio.get_running_loop().sock_sendall(client, request("/large") * 8)
            await asyncio.sleep(0.4)
            assert len(server._connections) == 0


async def test_closing_ends_what_is_open() -> None:
    async with serving() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        await asyncio.sleep(0.02)
    assert await asyncio.wait_for(reader.read(), 2) == b""
    writer.close()


async def test_a_taken_port_is_told_with_the_setting() -> None:
    async with serving() as server:
        taken = HttpSettings(listen=str(server.address))
        with pytest.raises(ListenError, match=r"\(http\.listen\): the port is in use"):
            await HttpServer.start(taken, PAGES)
