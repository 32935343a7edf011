"""The PostgreSQL server with real clients: psql, psycopg and SQLAlchemy, and with hostile ones."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import ipaddress
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.lake.pgwire import PostgresServer, Tls
from neve.runtime import BlockingRunner
from unit.lake.pgwire.fake_engine import EVERY_TYPE, FakeEngine
from unit.lake.pgwire.wire_client import PASSWORD, USER, message, query, startup

TESTS = Path(__file__).resolve().parent.parent
ROWS = 1_000_000
SECONDS = 60.0


@dataclass(frozen=True)
class Running:
    engine: FakeEngine
    port: int

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        given: dict[str, Any] = {"user": USER, "password": PASSWORD, "autocommit": True} | more
        return psycopg.connect(host="127.0.0.1", port=self.port, dbname="neve", **given)

    def psql(self, *commands: str, **environment: str) -> subprocess.CompletedProcess[str]:
        asked = [part for command in commands for part in ("-c", command)]
        given = {"PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "60", "PGSSLMODE": "disable"}
        return subprocess.run(
            [
                "psql",
                "-X",
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-U",
                USER,
                "-d",
                "neve",
                *asked,
            ],
            env=os.environ | given | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * SECONDS,
        )


@contextlib.contextmanager
def serving(**more: Any) -> Iterator[Running]:
    engine = FakeEngine()
    with BlockingRunner("postgres-test") as runner:
        server = PostgresServer(engine, port=0, users={USER: PASSWORD}, **more)
        runner.run(server.start())
        try:
            yield Running(engine, server.port)
        finally:
            runner.run(server.close())


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving() as found:
        yield found


@pytest.fixture
def psql(running: Running) -> Running:
    if shutil.which("psql") is None:
        print("psql is not on the PATH: left out")
        pytest.skip("psql is not on the PATH")
    return running


# --- psql


def test_psql_describes_what_there_is(psql: Running) -> None:
    done = psql.psql("\\d", "\\dt lake.*", "\\d orders", "\\l", "\\dn", "\\du", "\\d+ lake.clicks")
    assert done.returncode == 0, done.stderr
    said = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "public | orders | table | neve",
        "public | orders.v1 | table | neve",
        "lake | clicks | table | neve",
        "offset | bigint | | not null |",
        "timestamp | timestamp with time zone | | not null |",
        "key | bytea | | |",
        "neve | neve | UTF8 | C | C | | libc | ",
        "lake | neve",
        "price | numeric(10,2) | | | | extended | | |",
    ):
        assert any(each.startswith(line.strip()) for each in said), line + "\n" + done.stdout


def test_psql_says_what_is_not_there(psql: Running) -> None:
    done = psql.psql("\\d nothing")
    assert 'Did not find any relation named "nothing".' in done.stderr


def test_psql_runs_several_statements_and_shows_errors(psql: Running) -> None:
    done = psql.psql("SELECT 1; SHOW server_version; BEGIN; SELECT 1; COMMIT")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(1 row)") == 3
    done = psql.psql("\\set VERBOSITY verbose", "SELECT fail()")
    assert "ERROR:  42703: there is no such column: nope" in done.stderr
    assert "HINT:  Try another." in done.stderr
    assert "^" in done.stderr


def test_psql_is_refused_with_a_wrong_password(psql: Running) -> None:
    done = psql.psql("SELECT 1", PGPASSWORD="wrong")
    assert done.returncode == 2
    assert "password authentication failed" in done.stderr


# --- psycopg


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_every_type(running: Running, binary: bool) -> None:
    with running.connect() as connection:
        values, nulls = connection.execute("SELECT every_type()", binary=binary).fetchall()
    for name, value in zip(EVERY_TYPE, values, strict=True):
        wanted = EVERY_TYPE[name][1]
        assert value == (dict(wanted) if name == "map" else wanted), name
    assert set(nulls) == {None}


@pytest.mark.parametrize("placeholder", ["%s", "%b", "%t"])
def test_psycopg_sends_parameters(running: Running, placeholder: str) -> None:
    sent = [
        *(1, 2**40, 1.5, True, "it's \\ %", b"\x00\xff", decimal.Decimal("12.50"), [1, 2]),
        *(datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)),
        *(datetime.time(1, 2, 3), ["a", 'b"']),
    ]
    marks = ", ".join([placeholder] * len(sent)) + "::text[]"
    with running.connect() as connection:
        row = connection.execute(f"SELECT {marks}".encode(), sent).fetchone()
    assert list(row or ()) == sent
    assert running.engine.executed[-1][1] == sent
    given = uuid.uuid4()
    with running.connect() as connection:
        connection.execute(f"SELECT {placeholder}".encode(), [given])
    assert running.engine.executed[-1][1] == [str(given)]


def test_psycopg_prepares_pipelines_and_scrolls(running: Running) -> None:
    with running.connect(prepare_threshold=1) as connection:
        for number in range(5):
            assert connection.execute("SELECT %s", [number]).fetchone() == (number,)
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s", [number]) for number in range(20)]
        assert [cursor.fetchone() for cursor in cursors] == [(number,) for number in range(20)]
        with connection.transaction(), connection.cursor(name="scrolled") as cursor:
            cursor.itersize = 1000
            cursor.execute("SELECT numbers(25000)")
            assert [row[0] for row in cursor] == list(range(25_000))


def test_psycopg_sees_errors_and_goes_on(running: Running) -> None:
    with running.connect(autocommit=False) as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            connection.execute('SELECT fail() FROM "x" WHERE a = %s', [1])
        assert caught.value.diag.message_hint == "Try another."
        assert caught.value.diag.statement_position == "8"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_psycopg_is_refused_with_a_wrong_password(running: Running) -> None:
    for user, password in ((USER, "wrong"), ("nobody", PASSWORD)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            running.connect(user=user, password=password)


def test_psycopg_cancels(running: Running) -> None:
    engine = running.engine
    with running.connect() as connection:
        engine.hanging.clear()

        def stop() -> None:
            assert engine.hanging.wait(SECONDS)
            connection.cancel_safe(timeout=SECONDS)

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT hang()")
        stopper.join()
        assert engine.executed[-1][2] in engine.cancelled
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_million_rows_pass_through_bounded_memory() -> None:
    """150 MB and more are streamed; what the server's process grows by is a small part of it."""
    command = [sys.executable, "-m", "unit.lake.pgwire.serve_fake"]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        command,
        cwd=TESTS,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        running = Running(FakeEngine(), int(process.stdout.readline()))
        with running.connect() as connection:
            list(connection.cursor().stream("SELECT numbers(150000)"))  # what is loaded is loaded
            before = resident_peak_bytes(process.pid)
            rows, total_bytes, last = 0, 0, -1
            for number, text in connection.cursor().stream("SELECT numbers(1000000)", size=1000):
                if rows == 0:
                    time.sleep(3)  # a server that does not wait for its client runs ahead
                rows += 1
                total_bytes += len(text) + 8
                assert number == last + 1
                last = number
        grown = resident_peak_bytes(process.pid) - before
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(SECONDS) == 0
    assert rows == ROWS
    assert total_bytes > 150e6
    # Without back pressure it grows by 130 MB; allocators and buffers alone may take some 40.
    assert grown < 75e6, f"grew by {grown / 1e6:.0f} MB"


def resident_peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak in /proc")


# --- SQLAlchemy


@pytest.fixture
def engine(running: Running) -> Iterator[sqlalchemy.Engine]:
    url = sqlalchemy.URL.create(
        "postgresql+psycopg", USER, PASSWORD, "127.0.0.1", running.port, "neve"
    )
    found = sqlalchemy.create_engine(url)
    yield found
    found.dispose()


def test_sqlalchemy_inspects(engine: sqlalchemy.Engine) -> None:
    inspector = sqlalchemy.inspect(engine)
    assert sorted(inspector.get_table_names()) == ["orders", "orders.v1"]
    assert inspector.get_table_names(schema="lake") == ["clicks"]
    assert inspector.get_schema_names() == ["information_schema", "lake", "public"]
    assert inspector.has_table("orders")
    assert not inspector.has_table("nothing")
    columns = {column["name"]: column for column in inspector.get_columns("orders")}
    assert list(columns) == ["key", "value", "topic", "partition", "offset", "timestamp"]
    assert isinstance(columns["offset"]["type"], sqlalchemy.BIGINT)
    assert columns["timestamp"]["type"].timezone is True  # type: ignore[attr-defined]
    assert (columns["offset"]["nullable"], columns["key"]["nullable"]) == (False, True)
    clicks = {column["name"]: column["type"] for column in inspector.get_columns("clicks", "lake")}
    assert (clicks["price"].precision, clicks["price"].scale) == (10, 2)  # type: ignore[attr-defined]
    assert isinstance(clicks["tags"], sqlalchemy.ARRAY)
    assert inspector.get_pk_constraint("orders")["constrained_columns"] == []
    assert inspector.get_foreign_keys("orders") == inspector.get_indexes("orders") == []
    assert inspector.get_unique_constraints("orders") == []
    assert inspector.get_check_constraints("orders") == []
    assert inspector.get_table_comment("orders") == {"text": None}
    assert inspector.get_view_names() == []


def test_sqlalchemy_queries_a_reflected_table(engine: sqlalchemy.Engine, running: Running) -> None:
    orders = sqlalchemy.Table("orders", sqlalchemy.MetaData(), autoload_with=engine)
    wanted = sqlalchemy.select(orders.c.offset).where(
        orders.c.topic == "it's", orders.c.offset > 5, orders.c.partition.in_([1, 2])
    )
    with engine.connect() as connection:
        assert len(connection.execute(wanted.limit(3)).fetchall()) == 1
    sql, given, _ = running.engine.executed[-1]
    assert sql.startswith("SELECT orders.`offset` \nFROM orders \nWHERE orders.topic = ?::STRING")
    assert given == ["it's", 5, 1, 2, 3]


# --- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "neve test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_tls_with_a_checked_certificate_and_a_bound_channel(certificate: tuple[Path, Path]) -> None:
    with serving(tls=Tls(certificate=certificate[0], key=certificate[1])) as running:
        checked = {"sslmode": "verify-full", "sslrootcert": str(certificate[0])}
        with running.connect(channel_binding="require", **checked) as connection:
            assert connection.pgconn.ssl_in_use
            rows = connection.execute("SELECT numbers(20000)").fetchall()
            assert len(rows) == 20_000
        with running.connect(channel_binding="disable", **checked) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with running.connect(sslmode="disable") as connection:
            assert not connection.pgconn.ssl_in_use


def test_tls_that_is_required(certificate: tuple[Path, Path]) -> None:
    tls = Tls(certificate=certificate[0], key=certificate[1], required=True)
    with serving(tls=tls) as running:
        with pytest.raises(psycopg.OperationalError, match="this server requires TLS"):
            running.connect(sslmode="disable")
        with running.connect(sslmode="require") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_bytes_before_the_handshake_are_not_taken(certificate: tuple[Path, Path]) -> None:
    with (
        serving(tls=Tls(certificate=certificate[0], key=certificate[1])) as running,
        socket.create_connection(("127.0.0.1", running.port), SECONDS) as transport,
    ):
        transport.sendall(struct.pack(">ii", 8, 80877103) + startup(user=USER))
        received = b""
        with contextlib.suppress(ConnectionError):
            while more := transport.recv(1000):
                received += more
        assert b"R" not in received[:1]
        assert b"SCRAM" not in received


# --- hostile clients

MESSAGES = st.builds(
    lambda kind, body: message(bytes([kind]), body),
    st.sampled_from(b"QPBDECHSXpdcfF\x00\xff"),
    st.binary(max_size=60) | st.builds(lambda t: t.encode() + b"\0", st.text(max_size=40)),
)
NOISE = st.lists(MESSAGES | st.binary(max_size=60), max_size=8).map(b"".join)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(NOISE)
def test_noise_instead_of_a_log_in_harms_nobody(running: Running, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), SECONDS) as transport:
        transport.sendall(startup(user=USER) * (len(noise) % 2) + noise)
        transport.shutdown(socket.SHUT_WR)
        drained(transport)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(NOISE)
def test_noise_after_a_log_in_harms_nobody(trusting: Running, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", trusting.port), SECONDS) as transport:
        transport.sendall(startup(user=USER) + query("SELECT 1") + noise)
        transport.shutdown(socket.SHUT_WR)
        assert b"\x00\x00\x00\x08\x00\x00\x00\x00" in drained(transport), "let in"


@pytest.fixture(scope="module")
def trusting() -> Iterator[Running]:
    with serving(trust=True) as found:
        yield found
        with found.connect() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def drained(transport: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while more := transport.recv(1 << 16):
            received += more
    return received


def test_a_client_that_announces_too_much_is_closed(trusting: Running) -> None:
    with socket.create_connection(("127.0.0.1", trusting.port), SECONDS) as transport:
        transport.sendall(startup(user=USER) + b"Q" + struct.pack(">i", 2**31 - 1))
        assert b"08P01" in drained(transport)


def test_the_server_is_well_after_all_this(running: Running) -> None:
    until = time.monotonic() + SECONDS
    with running.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert time.monotonic() < until
