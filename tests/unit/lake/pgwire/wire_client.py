"""A client that speaks PostgreSQL's protocol byte by byte, well or badly."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from scramp import ScramClient

from neve import runtime
from neve.lake.pgwire import Limits, PostgresServer
from unit.lake.pgwire.fake_engine import FakeEngine

USER, PASSWORD = "reader", "påss word"
SECONDS = 60.0


@asynccontextmanager
async def running(
    engine: FakeEngine | None = None, limits: Limits | None = None, **more: Any
) -> AsyncIterator[PostgresServer]:
    given = {"users": {USER: PASSWORD}} | more
    server = PostgresServer(engine or FakeEngine(), port=0, limits=limits, **given)
    await server.start()
    try:
        yield server
    finally:
        for client in _OPEN:
            await client.close()
        _OPEN.clear()
        await server.close()


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def startup(version: int = 3 << 16, **parameters: str) -> bytes:
    body = struct.pack(">i", version)
    body += b"".join(text(name) + text(value) for name, value in parameters.items()) + b"\0"
    return struct.pack(">i", len(body) + 4) + body


def query(sql: str) -> bytes:
    return message(b"Q", text(sql))


def parse(sql: str, name: str = "", types: Sequence[int] = ()) -> bytes:
    body = text(name) + text(sql) + struct.pack(f">h{len(types)}I", len(types), *types)
    return message(b"P", body)


def bind(
    values: Sequence[bytes | None] = (),
    *,
    portal: str = "",
    statement: str = "",
    formats: Sequence[int] = (),
    results: Sequence[int] = (),
) -> bytes:
    body = text(portal) + text(statement)
    body += struct.pack(f">h{len(formats)}h", len(formats), *formats)
    body += struct.pack(">h", len(values))
    for value in values:
        body += struct.pack(">i", -1 if value is None else len(value)) + (value or b"")
    return message(b"B", body + struct.pack(f">h{len(results)}h", len(results), *results))


def describe(kind: bytes, name: str = "") -> bytes:
    return message(b"D", kind + text(name))


def execute(portal: str = "", rows_max: int = 0) -> bytes:
    return message(b"E", text(portal) + struct.pack(">i", rows_max))


def close(kind: bytes, name: str = "") -> bytes:
    return message(b"C", kind + text(name))


SYNC, FLUSH, TERMINATE = message(b"S"), message(b"H"), message(b"X")


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of an error or notice."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def row_of(body: bytes) -> list[bytes | None]:
    (count,) = struct.unpack_from(">h", body)
    at, found = 2, []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", body, at)
        at += 4
        found.append(None if size < 0 else body[at : at + size])
        at += max(size, 0)
    return found


class WireClient:
    """One connection. `read` gives a message, `until_ready` all up to ReadyForQuery."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.key = (0, 0)
        self.status: dict[str, str] = {}

    @classmethod
    async def connect(cls, server: PostgresServer, **more: Any) -> WireClient:
        client = cls(*await asyncio.open_connection("127.0.0.1", server.port, **more))
        _OPEN.append(client)
        return client

    @classmethod
    async def logged_in(cls, server: PostgresServer, **parameters: str) -> WireClient:
        client = await cls.connect(server)
        client.send(startup(user=USER, **parameters))
        assert await client.log_in(PASSWORD) == "ok"
        for kind, body in await client.until_ready():
            if kind == b"K":
                client.key = struct.unpack(">II", body)
            elif kind == b"S":
                name, value, _ = body.split(b"\0")
                client.status[name.decode()] = value.decode()
        return client

    async def log_in(self, password: str, mechanism: str = "SCRAM-SHA-256") -> str:
        """`ok`, or the SQLSTATE of the refusal."""
        kind, body = await self.read()
        if kind == b"E":
            return fields_of(body)["C"]
        assert (kind, body[:4]) == (b"R", struct.pack(">i", 10))
        scram = ScramClient([mechanism], "ignored", password)
        first = scram.get_client_first().encode()
        self.send(message(b"p", text(mechanism) + struct.pack(">i", len(first)) + first))
        kind, body = await self.read()
        if kind == b"E":
            return fields_of(body)["C"]
        scram.set_server_first(body[4:].decode())
        self.send(message(b"p", scram.get_client_final().encode()))
        kind, body = await self.read()
        if kind == b"E":
            return fields_of(body)["C"]
        scram.set_server_final(body[4:].decode())
        assert await self.read() == (b"R", struct.pack(">i", 0))
        return "ok"

    def send(self, *messages: bytes) -> None:
        self.writer.write(b"".join(messages))

    async def read(self) -> tuple[bytes, bytes]:
        async with runtime.deadline(SECONDS):
            kind, size = struct.unpack(">ci", await self.reader.readexactly(5))
            return kind, await self.reader.readexactly(size - 4)

    async def until_ready(self) -> list[tuple[bytes, bytes]]:
        found = [await self.read()]
        while found[-1][0] != b"Z":
            found.append(await self.read())
        return found

    async def ask(self, *messages: bytes) -> list[tuple[bytes, bytes]]:
        self.send(*messages)
        return await self.until_ready()

    async def kinds(self, *messages: bytes) -> str:
        """The kinds of the answers, as one word."""
        return b"".join(kind for kind, _ in await self.ask(*messages)).decode()

    async def is_closed(self) -> bool:
        async with runtime.deadline(SECONDS):
            try:
                await self.reader.read()
            except ConnectionError:
                return True
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


_OPEN: list[WireClient] = []
"""Of the test that runs: closed with its server."""


async def eventually(is_so: Any, seconds: float = SECONDS) -> None:
    async with runtime.deadline(seconds):
        while not is_so():
            await runtime.sleep(0.01)
