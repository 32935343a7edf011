"""Clients that take more than their share: of places, threads, memory, and attempts to log in."""

from __future__ import annotations

import logging

import pytest

from neve import runtime
from neve.lake.pgwire import Limits, PostgresServer
from neve.lake.pgwire.client_limits import (
    DELAY_SECONDS_MAX,
    FORGET_SECONDS,
    FREE_FAILURES,
    REMEMBERED_MAX,
    LoginThrottle,
)
from unit.lake.pgwire.fake_engine import FakeEngine
from unit.lake.pgwire.wire_client import (
    PASSWORD,
    SYNC,
    USER,
    WireClient,
    bind,
    eventually,
    fields_of,
    parse,
    query,
    running,
    startup,
)

ELSEWHERE = ("127.0.0.2", 0)


async def elsewhere(server: PostgresServer) -> WireClient:
    """A client of another address, logged in."""
    client = await WireClient.connect(server, local_addr=ELSEWHERE)
    client.send(startup(user=USER))
    assert await client.log_in(PASSWORD) == "ok"
    await client.until_ready()
    return client


def code_of(answers: list[tuple[bytes, bytes]]) -> list[str]:
    return [fields_of(body)["C"] for kind, body in answers if kind == b"E"]


# --- places


async def test_silent_sockets_keep_no_client_out() -> None:
    limits = Limits(connections_max=2, starting_max=3, connections_per_address_max=100)
    async with running(limits=limits) as server:
        silent = [await WireClient.connect(server) for _ in range(20)]
        client = await WireClient.logged_in(server)
        assert await client.kinds(query("SELECT 1")) == "TDCZ"
        assert await silent[0].is_closed()


async def test_an_address_has_a_limit_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async with running(limits=Limits(connections_per_address_max=3)) as server:
        mine = [await WireClient.logged_in(server) for _ in range(3)]
        with caplog.at_level(logging.WARNING, "neve.sql"):
            refused = await WireClient.connect(server)
            assert await refused.is_closed()
        assert "too many connections from one address" in caplog.text
        other = await elsewhere(server)
        assert await other.kinds(query("SELECT 1")) == "TDCZ"
        assert await mine[0].kinds(query("SELECT 1")) == "TDCZ"


# --- threads


async def test_one_address_leaves_threads_for_others() -> None:
    engine = FakeEngine()
    async with running(engine, Limits(queries_max=2, queries_per_address_max=1)) as server:
        busy = [await WireClient.logged_in(server) for _ in range(3)]
        for each in busy:
            each.send(query("SELECT hang()"))
        await eventually(engine.hanging.is_set)
        other = await elsewhere(server)
        async with runtime.deadline(10):
            assert await other.kinds(query("SELECT 1")) == "TDCZ"
        for each in busy:
            each.writer.transport.abort()


@pytest.mark.parametrize("wanted", ["0", "10h", "default"])
async def test_no_client_lifts_the_limit_of_its_statements(wanted: str) -> None:
    async with running(FakeEngine(), Limits(statement_seconds=0.1)) as server:
        client = await WireClient.logged_in(server)
        await client.ask(query(f"SET statement_timeout = '{wanted}'"))
        async with runtime.deadline(20):
            assert code_of(await client.ask(query("SELECT hang()"))) == ["57014"]
        startup_value = await WireClient.logged_in(server, statement_timeout="0")
        async with runtime.deadline(20):
            assert code_of(await startup_value.ask(query("SELECT hang()"))) == ["57014"]


async def test_a_server_whose_threads_are_all_lost_says_so() -> None:
    class Deaf(FakeEngine):
        def cancel(self, tag: str) -> None:
            self.cancelled.append(tag)

    engine = Deaf()
    limits = Limits(queries_max=1, cancel_seconds=0.05, statement_seconds=0.05)
    async with running(engine, limits) as server:
        assert server.failure == ""
        client = await WireClient.logged_in(server)
        client.send(query("SELECT hang()"))
        assert await client.is_closed()
        assert "do not end" in server.failure
        FakeEngine.cancel(engine, engine.executed[0][2])
        await eventually(lambda: server.failure == "")


# --- memory


async def test_cursors_are_counted_in_bytes() -> None:
    async with running(limits=Limits(statement_bytes_max=100_000)) as server:
        client = await WireClient.logged_in(server)
        await client.ask(query("BEGIN"))
        declare = "DECLARE c{} CURSOR FOR SELECT '{}'"
        assert code_of(await client.ask(query(declare.format(1, "x" * 60_000)))) == []
        assert code_of(await client.ask(query(declare.format(2, "x" * 60_000)))) == ["53400"]
        await client.ask(query("ROLLBACK"))
        await client.ask(query("BEGIN"))
        assert code_of(await client.ask(query(declare.format(2, "x" * 60_000)))) == []


async def test_values_of_portals_are_counted_in_bytes() -> None:
    async with running(limits=Limits(statement_bytes_max=100_000)) as server:
        client = await WireClient.logged_in(server)
        await client.ask(query("BEGIN"), parse("SELECT $1", "s", [25]), SYNC)
        await client.until_ready()
        wanted = [bind([b"x" * 60_000], portal=f"p{at}", statement="s") for at in range(2)]
        assert code_of(await client.ask(*wanted, SYNC)) == ["53400"]


async def test_all_connections_share_a_bound() -> None:
    limits = Limits(statement_bytes_max=100_000, statement_bytes_total_max=150_000)
    async with running(limits=limits) as server:
        first, second = [await WireClient.logged_in(server) for _ in range(2)]
        asked = parse(f"SELECT '{'x' * 90_000}'", "s"), SYNC
        assert code_of(await first.ask(*asked)) == []
        assert code_of(await second.ask(*asked)) == ["53400"]
        await first.close()
        await eventually(lambda: server.clients == 1)
        assert code_of(await second.ask(*asked)) == []


# --- log-ins


async def test_log_ins_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "neve.sql"):
        async with running() as server:
            client = await WireClient.connect(server)
            client.send(startup(user="eve"))
            assert await client.log_in("guess") == "28P01"
            await WireClient.logged_in(server)
    failed, done = [(each.levelname, each.getMessage(), each.fields) for each in caplog.records]
    about = {"user": "eve", "address": "127.0.0.1", "failures": 1}
    assert failed == ("WARNING", "log-in failed", about)
    assert done == ("INFO", "log-in", {"user": USER, "address": "127.0.0.1"})


async def test_guesses_are_slowed_and_other_addresses_are_not() -> None:
    async with running(limits=Limits(login_seconds=0.3)) as server:
        codes = []
        for _ in range(FREE_FAILURES + 5):
            client = await WireClient.connect(server)
            client.send(startup(user=USER))
            codes.append(await client.log_in("guess"))
            if codes[-1] == "53300":
                break
        assert codes[-1] == "53300", "further attempts would wait for longer than a log-in may"
        async with runtime.deadline(1):
            await elsewhere(server)


def test_delays_grow_queue_up_and_are_forgotten() -> None:
    async def world() -> None:
        throttle = LoginThrottle()
        for _ in range(FREE_FAILURES):
            throttle.failed("ana", "a")
        assert throttle.delay_seconds("ana", "a") == 0
        for _ in range(20):
            throttle.failed("ana", "a")
        waits = [throttle.delay_seconds("ana", "a") for _ in range(4)]
        assert waits == [0, DELAY_SECONDS_MAX, 2 * DELAY_SECONDS_MAX, 3 * DELAY_SECONDS_MAX]
        assert throttle.delay_seconds("ana", "b") == throttle.delay_seconds("bo", "a") == 0
        throttle.succeeded("ana", "a")
        assert throttle.delay_seconds("ana", "a") == 0
        for number in range(40):
            throttle.failed(f"user {number}", "c")
        assert [throttle.delay_seconds("another", "c") for _ in range(2)] != [0, 0]
        await runtime.sleep(FORGET_SECONDS + 1)
        assert [throttle.delay_seconds("another", "c") for _ in range(2)] == [0, 0]
        for number in range(2 * REMEMBERED_MAX):
            throttle.failed("ana", f"address {number}")
        assert len(throttle._failures) <= REMEMBERED_MAX

    runtime.simulate(world(), seed=1)
