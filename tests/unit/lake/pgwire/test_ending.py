"""Queries that are ended: by a cancel request, a time-out, a client that goes or stalls, a stop."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

from neve import runtime
from neve.lake.pgwire import Limits
from unit.lake.pgwire.fake_engine import BATCH_ROWS, FakeEngine, Result
from unit.lake.pgwire.wire_client import (
    SYNC,
    WireClient,
    describe,
    eventually,
    fields_of,
    parse,
    query,
    running,
    startup,
)

CANCEL = 80877102


async def cancel(server: object, process: int, secret: int) -> None:
    client = await WireClient.connect(server)  # type: ignore[arg-type]
    client.send(struct.pack(">iiII", 16, CANCEL, process, secret))
    assert await client.is_closed()


async def hanging(engine: FakeEngine, client: WireClient) -> None:
    engine.hanging.clear()
    client.send(query("SELECT hang()"))
    await eventually(engine.hanging.is_set)


async def test_a_cancel_request_ends_the_query_on_the_engine() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        await hanging(engine, client)
        await cancel(server, *client.key)
        answers = await client.until_ready()
        (about,) = [fields_of(body) for kind, body in answers if kind == b"E"]
        assert (about["C"], about["S"]) == ("57014", "ERROR")
        assert engine.executed[-1][2] in engine.cancelled
        assert await client.kinds(query("SELECT 1")) == "TDCZ"


async def test_a_wrong_key_cancels_nothing() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        await hanging(engine, client)
        process, secret = client.key
        await cancel(server, process, secret ^ 1)
        await cancel(server, process + 1, secret)
        await cancel(server, 0, 0)
        assert engine.cancelled == []
        await cancel(server, process, secret)
        await client.until_ready()


async def test_a_cancel_request_between_queries_does_nothing() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        await cancel(server, *client.key)
        assert await client.kinds(query("SELECT 1")) == "TDCZ"


async def test_a_cancel_passes_while_all_threads_and_all_places_are_taken() -> None:
    engine = FakeEngine()
    limits = Limits(queries_max=1, connections_max=2)
    async with running(engine, limits) as server:
        first, second = [await WireClient.logged_in(server) for _ in range(2)]
        await hanging(engine, first)
        second.send(query("SELECT 1"))
        await cancel(server, *first.key)
        assert (await first.until_ready())[-2][0] == b"E"
        assert (await second.until_ready())[-2][0] == b"C"


async def test_a_statement_that_takes_too_long_is_ended() -> None:
    engine = FakeEngine()
    async with running(engine, Limits(statement_seconds=0.05)) as server:
        client = await WireClient.logged_in(server)
        for _ in range(2):
            answers = await client.ask(query("SELECT hang()"))
            (about,) = [fields_of(body) for kind, body in answers if kind == b"E"]
            assert about["C"] == "57014"
            assert "timeout" in about["M"]
        assert len(set(engine.cancelled)) == 2


async def test_a_client_that_goes_ends_its_query() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        await hanging(engine, client)
        client.writer.transport.abort()
        await eventually(lambda: server.clients == 0)
        assert engine.executed[-1][2] in engine.cancelled


async def test_a_client_that_takes_nothing_holds_the_engine_back() -> None:
    """Of the 1,000,000 rows only as many are made as fit into buffers that have a bound."""
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        client.send(query("SELECT numbers(1000000)"))
        await eventually(lambda: engine.batches_made > 0)
        made = -1
        while made != engine.batches_made:
            made = engine.batches_made
            await runtime.sleep(0.3)
        # Buffers of the system and of asyncio's reader are counted in: some 10 MB.
        assert made * BATCH_ROWS < 150_000
        client.writer.transport.abort()
        await eventually(lambda: engine.executed[-1][2] in engine.cancelled)


async def test_a_client_that_stalls_is_closed() -> None:
    engine = FakeEngine()
    async with running(engine, Limits(stall_seconds=0.3)) as server:
        client = await WireClient.logged_in(server)
        client.send(query("SELECT numbers(1000000)"))
        await eventually(lambda: server.clients == 0)
        assert engine.executed[-1][2] in engine.cancelled


async def test_a_server_that_stops_ends_queries_and_says_why() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        starting = await WireClient.connect(server)
        starting.send(startup(user="reader"))
        await starting.read()
        await hanging(engine, client)
        started = runtime.monotonic()
        await server.close()
        assert runtime.monotonic() - started < 8
        kind, body = await client.read()
        assert (kind, fields_of(body)["C"]) == (b"E", "57P01")
        assert engine.executed[-1][2] in engine.cancelled


async def test_an_engine_that_does_not_let_go_costs_one_connection() -> None:
    class Deaf(FakeEngine):
        def cancel(self, tag: str) -> None:
            self.cancelled.append(tag)

    engine = Deaf()
    async with running(engine, Limits(cancel_seconds=0.1)) as server:
        client = await WireClient.logged_in(server)
        await hanging(engine, client)
        await cancel(server, *client.key)
        assert await client.is_closed()
        other = await WireClient.logged_in(server)
        assert await other.kinds(query("SELECT 1")) == "TDCZ"
        FakeEngine.cancel(engine, engine.executed[0][2])


async def test_asking_again_after_many_endings() -> None:
    engine = FakeEngine()
    async with running(engine, Limits(statement_seconds=0.01, queries_max=2)) as server:

        async def one() -> None:
            client = await WireClient.logged_in(server)
            for _ in range(5):
                await client.ask(query("SELECT hang()"))
            assert (await client.ask(query("SELECT 1")))[-1][0] == b"Z"

        await asyncio.gather(*(one() for _ in range(4)))


async def test_a_query_that_waits_its_turn_is_cancelled_at_once() -> None:
    engine = FakeEngine()
    async with running(engine, limits=Limits(queries_max=1, cancel_seconds=60)) as server:
        busy = await WireClient.logged_in(server)
        waiting = await WireClient.logged_in(server)
        await hanging(engine, busy)
        begun = len(engine.executed)
        waiting.send(query("SELECT 1"))
        await asyncio.sleep(0.05)
        await cancel(server, *waiting.key)
        async with runtime.deadline(10):
            answers = await waiting.until_ready()
        assert [fields_of(body)["C"] for kind, body in answers if kind == b"E"] == ["57014"]
        await cancel(server, *busy.key)
        await busy.until_ready()
        assert len(engine.executed) == begun
        assert await waiting.kinds(query("SELECT 1")) == "TDCZ"


class SlowToOpen(FakeEngine):
    """An engine whose analysis of a query takes until it is cancelled."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, tag: str) -> Result:
        result = super().execute(sql, parameters, tag=tag)
        if not self._stops[tag].wait(60):
            raise AssertionError("nobody cancelled it")
        return result


async def test_a_description_that_takes_too_long_is_ended() -> None:
    engine = SlowToOpen()
    async with running(engine, Limits(statement_seconds=0.05)) as server:
        client = await WireClient.logged_in(server)
        asked = parse("SELECT 1", "s") + describe(b"S", "s") + SYNC
        async with runtime.deadline(30):
            answers = await client.ask(asked)
        (about,) = [fields_of(body) for kind, body in answers if kind == b"E"]
        assert about["C"] == "57014"
        assert engine.cancelled
