"""A server and clients that exchange lines over the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from neve import runtime
from support.simulated_network import Host, Network

PORT = 7


class Server:
    """A host that notes each line that it receives, and answers it unless it is silent."""

    def __init__(self, host: Host, *, answers: bool = True) -> None:
        self.host = host
        self.lines: list[str] = []
        self.ends: list[str] = []
        self._answers = answers

    async def start(self) -> Server:
        await self.host.run(asyncio.start_server(self._serve, self.host.name, PORT))
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.lines.append(line.decode().strip())
                if self._answers:
                    writer.write(b"got " + line)
            self.ends.append("end")
        except OSError as error:
            self.ends.append(type(error).__name__)
        finally:
            writer.close()


class Client:
    """A connection from another host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, network: Network, name: str = "server", *, source: str = "client") -> Client:
        return cls(*await network.host(source).run(asyncio.open_connection(name, PORT)))

    def write(self, line: str) -> None:
        self.writer.write(f"{line}\n".encode())

    async def answer(self) -> str:
        return (await self.reader.readline()).decode().strip()

    async def ask(self, line: str) -> str:
        self.write(line)
        return await self.answer()


async def within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    async with runtime.deadline(seconds):
        return await work
