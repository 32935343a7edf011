"""The server as a client sees it, message by message."""

from __future__ import annotations

import asyncio
import struct

import pytest

from neve.lake.pgwire import Limits
from unit.lake.pgwire.fake_engine import FakeEngine
from unit.lake.pgwire.wire_client import (
    FLUSH,
    SYNC,
    TERMINATE,
    WireClient,
    bind,
    close,
    describe,
    eventually,
    execute,
    fields_of,
    message,
    parse,
    query,
    row_of,
    running,
    startup,
    text,
)


def errors_in(answers: list[tuple[bytes, bytes]]) -> list[str]:
    return [fields_of(body)["C"] for kind, body in answers if kind == b"E"]


def rows_in(answers: list[tuple[bytes, bytes]]) -> list[list[bytes | None]]:
    return [row_of(body) for kind, body in answers if kind == b"D"]


def tags_in(answers: list[tuple[bytes, bytes]]) -> list[str]:
    return [body[:-1].decode() for kind, body in answers if kind == b"C"]


# --- the beginning


async def test_a_client_is_told_the_settings_it_goes_by() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server, application_name="me")
        assert client.status["server_encoding"] == client.status["client_encoding"] == "UTF8"
        assert client.status["standard_conforming_strings"] == "on"
        assert client.status["application_name"] == "me"
        assert client.status["TimeZone"] == "UTC"
        assert client.status["default_transaction_read_only"] == "on"


async def test_encryption_that_is_not_offered_is_declined_and_the_client_goes_on() -> None:
    async with running() as server:
        client = await WireClient.connect(server)
        for code in (80877103, 80877104):
            client.send(struct.pack(">ii", 8, code))
            assert await client.reader.readexactly(1) == b"N"
        client.send(startup(user="reader"))
        assert await client.log_in("påss word") == "ok"


async def test_a_newer_minor_version_and_unknown_options_are_answered_with_what_there_is() -> None:
    async with running() as server:
        client = await WireClient.connect(server)
        client.send(startup((3 << 16) + 2, user="reader", **{"_pq_.extra": "on"}))
        kind, body = await client.read()
        assert (kind, body) == (b"v", struct.pack(">ii", 3 << 16, 1) + text("_pq_.extra"))
        assert await client.log_in("påss word") == "ok"


async def test_what_is_no_startup_packet_is_refused() -> None:
    async with running() as server:
        for sent in (
            struct.pack(">ii", 2**31 - 1, 3 << 16),
            struct.pack(">ii", 8, 2 << 16),
            struct.pack(">i", -5) + b"\0" * 10,
            startup(database="no user"),
            startup(user="reader", replication="true"),
            startup(user="reader", client_encoding="LATIN1"),
            struct.pack(">ii", 9, 3 << 16) + b"u",
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            client = await WireClient.connect(server)
            client.send(sent)
            if b"LATIN1" in sent:
                assert await client.log_in("påss word") == "ok"
            kind, body = await client.read()
            assert kind == b"E"
            assert fields_of(body)["S"] == "FATAL"
            assert await client.is_closed()
        assert await (await WireClient.logged_in(server)).kinds(query("SELECT 1")) == "TDCZ"


async def test_a_log_in_that_takes_too_long_is_ended() -> None:
    async with running(limits=Limits(login_seconds=0.2)) as server:
        client = await WireClient.connect(server)
        client.send(startup(user="reader"))
        assert (await client.read())[0] == b"R"
        kind, body = await client.read()
        assert (kind, fields_of(body)["C"]) == (b"E", "57014")
        silent = await WireClient.connect(server)
        assert await silent.is_closed()
        await eventually(lambda: not server._connections)


async def test_clients_beyond_the_limit_are_told_so() -> None:
    async with running(limits=Limits(connections_max=1, starting_max=1)) as server:
        first = await WireClient.logged_in(server)
        second = await WireClient.connect(server)
        second.send(startup(user="reader"))
        assert await second.log_in("påss word") == "ok"
        assert errors_in([await second.read()]) == ["53300"]
        await second.is_closed()
        assert await first.kinds(query("SELECT 1")) == "TDCZ"
        waiting = [await WireClient.connect(server) for _ in range(3)]
        for silent in waiting[:-1]:
            assert await silent.is_closed()
        await first.close()
        await waiting[-1].close()
        await eventually(lambda: server.clients == 0)
        assert await (await WireClient.logged_in(server)).kinds(query("SELECT 1")) == "TDCZ"


async def test_without_passwords_everybody_is_let_in() -> None:
    async with running(users={}, trust=True) as server:
        client = await WireClient.connect(server)
        client.send(startup(user="anybody"))
        assert await client.read() == (b"R", struct.pack(">i", 0))


# --- simple queries


async def test_several_statements_are_answered_in_turn_up_to_the_first_error() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        answers = await client.ask(query("SELECT 1; SELECT ';' ; ; SHOW server_version -- ;"))
        assert tags_in(answers) == ["SELECT 1", "SELECT 1", "SHOW"]
        answers = await client.ask(query("SELECT 1; SELECT fail(); SELECT 2"))
        assert tags_in(answers) == ["SELECT 1"]
        assert errors_in(answers) == ["42703"]
        assert [sql for sql, *_ in engine.executed][-1] == "SELECT fail()"
        assert await client.kinds(query("  -- nothing")) == "IZ"


async def test_an_error_carries_code_hint_and_the_place_in_the_client_s_text() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        answers = await client.ask(query('SELECT 1; SELECT fail() FROM "a"'))
        (about,) = [fields_of(body) for kind, body in answers if kind == b"E"]
        assert (about["S"], about["C"], about["H"]) == ("ERROR", "42703", "Try another.")
        assert about["M"] == "there is no such column: nope"
        assert about["P"] == str(len("SELECT 1; ") + 8)
        answers = await client.ask(query("SELECT 'never ends"))
        (about,) = [fields_of(body) for kind, body in answers if kind == b"E"]
        assert (about["C"], about["P"]) == ("42601", "8")


async def test_transactions_have_their_states() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)

        async def state(sql: str) -> tuple[str, list[str], list[str]]:
            answers = await client.ask(query(sql))
            return answers[-1][1].decode(), tags_in(answers), errors_in(answers)

        assert await state("BEGIN") == ("T", ["BEGIN"], [])
        assert await state("SELECT fail()") == ("E", [], ["42703"])
        assert await state("SELECT 1") == ("E", [], ["25P02"])
        assert await state("COMMIT") == ("I", ["ROLLBACK"], [])
        assert await state("START TRANSACTION READ ONLY") == ("T", ["START TRANSACTION"], [])
        assert await state("SAVEPOINT a") == ("T", ["SAVEPOINT"], [])
        assert await state("SELECT fail()") == ("E", [], ["42703"])
        assert await state("ROLLBACK TO SAVEPOINT a") == ("T", ["ROLLBACK"], [])
        assert await state("RELEASE a; END") == ("I", ["RELEASE", "COMMIT"], [])
        assert await state("SELECT fail()") == ("I", [], ["42703"])
        assert await client.kinds(query("ROLLBACK")) == "NCZ"


async def test_settings_are_kept_shown_and_reported() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        answers = await client.ask(query("SET application_name TO 'tool'"))
        assert (b"S", text("application_name") + text("tool")) in answers
        assert rows_in(await client.ask(query("SHOW application_name"))) == [[b"tool"]]
        await client.ask(query("SET my.own = 5; SET statement_timeout = '2s'"))
        assert rows_in(await client.ask(query("SHOW my.own"))) == [[b"5"]]
        assert rows_in(await client.ask(query("SHOW statement_timeout"))) == [[b"2000"]]
        assert await client.kinds(query("SET TIME ZONE 'Europe/Berlin'")) == "NCZ"
        assert rows_in(await client.ask(query("SHOW TimeZone"))) == [[b"UTC"]]
        assert errors_in(await client.ask(query("SHOW nonsense"))) == ["42704"]
        assert errors_in(await client.ask(query("SET client_encoding = latin1"))) == ["0A000"]
        await client.ask(query("DISCARD ALL"))
        assert rows_in(await client.ask(query("SHOW application_name"))) == [[b""]]
        answers = await client.ask(query("SHOW ALL"))
        assert [b"server_version", b"15.0", b""] in rows_in(answers)


async def test_show_tables_is_the_engine_s() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        await client.ask(query("SHOW TABLES"))
        assert [sql for sql, *_ in engine.executed] == ["SHOW TABLES"]


async def test_what_is_not_supported_says_so() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        assert errors_in(await client.ask(query("COPY t TO STDOUT"))) == ["0A000"]
        assert errors_in(await client.ask(query("SELECT $1"))) == ["42P02"]
        assert errors_in(await client.ask(message(b"F", b""))) == ["0A000"]


# --- extended queries


async def test_a_query_with_parameters_in_both_formats() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        values = [struct.pack(">i", 7), b"it's", None]
        answers = await client.ask(
            parse('SELECT "x", $2, $1, $2 WHERE y = $3', types=[23, 0, 25]),
            describe(b"S"),
            bind(values, formats=[1, 0, 0], results=[1, 0, 1, 0]),
            describe(b"P"),
            execute(),
            SYNC,
        )
        assert b"".join(kind for kind, _ in answers).decode() == "1tT2TDCZ"
        assert answers[1][1] == struct.pack(">hIII", 3, 23, 25, 25)
        sql, given, _ = engine.executed[-1]
        assert sql == "SELECT `x`, ?, ?, ? WHERE y = ?"
        assert given == ["it's", 7, "it's", None]
        assert engine.executed[0][1] == [None, 0, None, None], "described with placeholders"


async def test_rows_that_differ_from_what_was_described_are_not_sent() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        await client.ask(parse("SELECT $1", "s"), describe(b"S", "s"), SYNC)
        assert await client.kinds(bind([b"a"], statement="s"), execute(), SYNC) == "2DCZ"
        await client.ask(parse("SELECT $1", "n", types=[26]), describe(b"S", "n"), SYNC)
        answers = await client.ask(bind([b"7"], statement="n"), execute(), SYNC)
        assert errors_in(answers) == ["0A000"]
        assert await client.kinds(bind([b"7"], statement="n"), describe(b"P"), execute(), SYNC) == (
            "2TDCZ"
        )


@pytest.mark.parametrize(
    ("oid", "value"),
    [
        (1700, b"12.50"),  # its precision is the value's
        (1083, b"12:30:15"),
        (1009, b'{a,"b c"}'),
        (1007, b"{1,NULL}"),
        (1183, b"{12:30:15}"),
    ],
)
async def test_a_value_of_the_type_that_was_described_may_come(oid: int, value: bytes) -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        asked = parse("SELECT $1", "s", types=[oid]), describe(b"S", "s"), SYNC
        (told,) = (body for kind, body in await client.ask(*asked) if kind == b"T")
        assert told[-6:-2] == struct.pack(">i", -1), "no size of a stand-in"
        assert await client.kinds(bind([value], statement="s"), execute(), SYNC) == "2DCZ"


async def test_after_an_error_everything_up_to_sync_is_skipped() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        kinds = await client.kinds(
            parse("SELECT fail()"), bind(), describe(b"P"), execute(), parse("SELECT 2"), SYNC
        )
        assert kinds == "12EZ"
        assert await client.kinds(parse("SELECT 2"), bind(), execute(), SYNC) == "12DCZ"
        assert [sql for sql, *_ in engine.executed] == ["SELECT fail()", "SELECT 2"]


async def test_a_portal_is_suspended_and_goes_on() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        await client.ask(query("BEGIN"))
        client.send(parse("SELECT numbers(25000)"), bind(portal="p"), execute("p", 10_003), SYNC)
        answers = await client.until_ready()
        assert len(rows_in(answers)) == 10_003
        assert answers[-2][0] == b"s"
        answers = await client.ask(execute("p", 10_003), SYNC)
        assert [int(row[0] or 0) for row in rows_in(answers)] == list(range(10_003, 20_006))
        answers = await client.ask(execute("p", 0), SYNC)
        assert tags_in(answers) == ["SELECT 4994"]
        assert tags_in(await client.ask(execute("p", 0), SYNC)) == ["SELECT 0"]
        await client.ask(query("COMMIT"))
        assert errors_in(await client.ask(execute("p", 1), SYNC)) == ["34000"]


async def test_outside_of_a_transaction_a_portal_ends_with_its_round() -> None:
    engine = FakeEngine()
    async with running(engine) as server:
        client = await WireClient.logged_in(server)
        await client.ask(parse("SELECT numbers(90000)"), bind(portal="p"), execute("p", 1), SYNC)
        assert engine.cancelled == [engine.executed[0][2]]
        assert errors_in(await client.ask(execute("p", 1), SYNC)) == ["34000"]


async def test_cursors_are_declared_fetched_and_closed() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        declare = 'DECLARE "c 1" NO SCROLL CURSOR FOR SELECT numbers(30)'
        assert errors_in(await client.ask(query(declare))) == ["25P01"]
        await client.ask(query("BEGIN"))
        assert tags_in(await client.ask(query(declare))) == ["DECLARE CURSOR"]
        answers = await client.ask(query('FETCH FORWARD 7 FROM "c 1"'))
        assert (len(rows_in(answers)), tags_in(answers)) == (7, ["FETCH 7"])
        assert tags_in(await client.ask(query('MOVE 3 IN "c 1"'))) == ["MOVE 3"]
        answers = await client.ask(query('FETCH "c 1"'))
        assert int(rows_in(answers)[0][0] or 0) == 10
        assert tags_in(await client.ask(query('FETCH ALL FROM "c 1"'))) == ["FETCH 19"]
        assert tags_in(await client.ask(query('CLOSE "c 1"'))) == ["CLOSE CURSOR"]
        assert errors_in(await client.ask(query('FETCH "c 1"'))) == ["34000"]


async def test_a_held_cursor_outlives_its_transaction() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        await client.ask(query("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT numbers(5); COMMIT"))
        assert tags_in(await client.ask(query("FETCH 2 FROM c"))) == ["FETCH 2"]


async def test_statements_are_prepared_used_and_forgotten() -> None:
    async with running(limits=Limits(statements_max=3)) as server:
        client = await WireClient.logged_in(server)
        assert await client.kinds(parse("SELECT 1", "a"), SYNC) == "1Z"
        assert errors_in(await client.ask(parse("SELECT 1", "a"), SYNC)) == ["42P05"]
        assert await client.kinds(bind(statement="a"), execute(), SYNC) == "2DCZ"
        await client.ask(parse("SELECT 1", "b"), parse("SELECT 1", "c"), SYNC)
        assert errors_in(await client.ask(parse("SELECT 1", "d"), SYNC)) == ["53400"]
        assert await client.kinds(close(b"S", "a"), parse("SELECT 1", "d"), SYNC) == "31Z"
        assert errors_in(await client.ask(bind(statement="a"), SYNC)) == ["26000"]
        assert tags_in(await client.ask(query("DEALLOCATE b"))) == ["DEALLOCATE"]
        assert tags_in(await client.ask(query("DEALLOCATE ALL"))) == ["DEALLOCATE ALL"]
        assert errors_in(await client.ask(bind(statement="c"), SYNC)) == ["26000"]
        assert errors_in(await client.ask(parse("SELECT 1; SELECT 2"), SYNC)) == ["42601"]


async def test_wrong_numbers_of_values_and_formats_are_refused() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        await client.ask(parse("SELECT $1, $2", "s"), SYNC)
        assert errors_in(await client.ask(bind([b"1"], statement="s"), SYNC)) == ["08P01"]
        two = [b"1", b"2"]
        asked = bind(two, statement="s", formats=[0, 0, 0])
        assert errors_in(await client.ask(asked, SYNC)) == ["08P01"]
        asked = bind(two, statement="s", results=[0, 0, 0])
        assert errors_in(await client.ask(asked, execute(), SYNC)) == ["08P01"]
        assert errors_in(await client.ask(bind(two, statement="s", formats=[7]), SYNC)) == ["22023"]
        await client.ask(parse("SELECT $1", "i", types=[23]), SYNC)
        assert errors_in(await client.ask(bind([b"x"], statement="i"), SYNC)) == ["22P02"]
        wrong = bind([b"x"], statement="i", formats=[1])
        assert errors_in(await client.ask(wrong, SYNC)) == ["22P03"]


async def test_flush_sends_what_is_there() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        client.send(parse("SELECT 1"), FLUSH)
        assert await client.read() == (b"1", b"")


async def test_commands_go_through_the_extended_protocol_too() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        show = (parse("SHOW server_version"), bind(), describe(b"P"), execute(), SYNC)
        assert await client.kinds(*show) == "12TDCZ"
        begin = (parse("BEGIN"), describe(b"S"), bind(), describe(b"P"), execute(), SYNC)
        assert await client.kinds(*begin) == "1tn2nCZ"
        empty = (parse(""), bind(), describe(b"P"), execute(), SYNC)
        assert await client.kinds(*empty) == "12nIZ"


async def test_a_client_may_leave_at_any_time() -> None:
    async with running() as server:
        client = await WireClient.logged_in(server)
        client.send(TERMINATE)
        assert await client.is_closed()
        await eventually(lambda: server.clients == 0)


async def test_many_clients_at_once() -> None:
    async with running() as server:

        async def one() -> int:
            client = await WireClient.logged_in(server)
            return len(rows_in(await client.ask(query("SELECT numbers(2000)"))))

        assert await asyncio.gather(*(one() for _ in range(10))) == [2000] * 10


async def test_a_broken_message_ends_its_connection_and_no_other() -> None:
    async with running() as server:
        other = await WireClient.logged_in(server)
        for sent in (message(b"Q", b"SELECT 1"), message(b"P", b"x"), message(b"z"), b"Q\0\0\0\1"):
            client = await WireClient.logged_in(server)
            client.send(sent)
            kind, body = await client.read()
            about = fields_of(body)
            assert (kind, about["S"], about["C"]) == (b"E", "FATAL", "08P01")
            assert await client.is_closed()
        assert await other.kinds(query("SELECT 1")) == "TDCZ"
