"""`neve sql --serve` as people run it: psql, psycopg and SQLAlchemy over real topics and tables."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy

from neve.lake.tables import catalog_of, commit, open_table, table_ref, write_files
from support.spark_topics import BEGIN_MS, Sent, Topics
from unit.lake.tables.table_scene import at

pytestmark = pytest.mark.slow

USER, PASSWORD = "ana", "correct horse"
SECONDS = 120
COUNT = 400
JOIN = """
SELECT c.name, count(*) FROM orders o JOIN lake.customers c ON o.value:customer::bigint = c.id
WHERE o.timestamp >= TIMESTAMP '{since}' GROUP BY c.name ORDER BY c.name
"""
_READY = re.compile(r"postgres \S+:(\d+)")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A server process with its Spark."""

    process: subprocess.Popen[str]
    port: int

    def connect(self, password: str = PASSWORD) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            dbname="neve",
            user=USER,
            password=password,
            autocommit=True,
        )

    def psql(self, *commands: str) -> subprocess.CompletedProcess[str]:
        asked = [part for command in commands for part in ("-c", command)]
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "neve"]
        return subprocess.run(
            ["psql", "-X", "-A", "-t", *where, *asked],
            env=os.environ | {"PGPASSWORD": PASSWORD, "PGSSLMODE": "disable"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    def java_cpu_seconds(self) -> float:
        """What its JVM has used so far."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                name, _, rest = (folder / "stat").read_text().rpartition(")")
                fields = rest.split()
                if name.endswith("(java") and int(fields[1]) == self.process.pid:
                    return (int(fields[11]) + int(fields[12])) / _TICKS
        raise AssertionError("the server has no JVM")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    topics = Topics.start(tmp_path_factory.mktemp("topics"))
    topics.create("orders", 2)
    for partition in (0, 1):
        records = [
            Sent(b"k", json.dumps({"customer": n % 3}).encode(), (), BEGIN_MS + n * 1000)
            for n in range(COUNT)
        ]
        topics.produce("orders", partition, records)
    topics.stop()
    catalog = catalog_of({}, topics.store)
    table = open_table(
        catalog, "lake.customers", pa.schema([("id", pa.int64()), ("name", pa.string())])
    )
    rows = pa.RecordBatch.from_pydict({"id": [0, 1, 2], "name": ["Ada", "Bo", "Cy"]})
    commit(table, write_files(table_ref(table), [rows]), {}, at(3))
    catalog.close()
    return topics.store


@pytest.fixture(scope="module")
def server(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "users").write_text(f"{USER}:{PASSWORD}\n")
    command = [sys.executable, "-m", "neve.cli", "sql", "--serve", "127.0.0.1:0"]
    command += ["--store", store, "--users", str(folder / "users"), "--master", "local[2]"]
    command += ["--conf", f"spark.local.dir={folder}", "--conf", "spark.driver.memory=1g"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = _READY.search(process.stdout.readline())
    assert found is not None
    yield Server(process, int(found[1]))
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0
    process.stdout.close()


def since(number: int) -> str:
    moment = datetime.datetime.fromtimestamp(BEGIN_MS / 1000 + number, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def expected(first: int) -> list[tuple[str, int]]:
    numbers = range(first, COUNT)
    return [
        (name, 2 * sum(number % 3 == at for number in numbers))
        for at, name in enumerate(("Ada", "Bo", "Cy"))
    ]


def test_psql_describes_and_joins(server: Server) -> None:
    if shutil.which("psql") is None:
        print("psql is not on the PATH: left out")
        pytest.skip("psql is not on the PATH")
    done = server.psql("\\d", "\\d orders", "\\d lake.customers", JOIN.format(since=since(100)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "public|orders|table|neve" in lines
    assert "lake|customers|table|neve" in server.psql("\\dt lake.*").stdout.splitlines()
    assert any(line.startswith("offset|bigint") for line in lines)
    assert any(line.startswith("name|text") for line in lines)
    assert lines[-3:] == [f"{name}|{count}" for name, count in expected(100)]


def test_psycopg_sends_parameters(server: Server) -> None:
    with server.connect() as link:
        wanted = "SELECT count(*), max(offset) FROM orders WHERE partition = %s AND offset < %s"
        assert link.execute(wanted, (1, 7)).fetchall() == [(7, 6)]
        cast = "SELECT count(*) FROM orders WHERE topic = %s::text AND offset < %s::int8"
        assert link.execute(cast, ("orders", "7")).fetchone() == (14,)
        moment = datetime.datetime.fromtimestamp(BEGIN_MS / 1000 + 390, datetime.UTC)
        late = link.execute("SELECT count(*) FROM orders WHERE timestamp >= %s", (moment,))
        assert late.fetchone() == (20,)


def test_sqlalchemy_inspects_and_joins(server: Server) -> None:
    url = sqlalchemy.URL.create(
        "postgresql+psycopg", USER, PASSWORD, "127.0.0.1", server.port, "neve"
    )
    engine = sqlalchemy.create_engine(url)
    try:
        inspector = sqlalchemy.inspect(engine)
        assert inspector.get_table_names() == ["orders"]
        assert inspector.get_table_names(schema="lake") == ["customers"]
        columns = [column["name"] for column in inspector.get_columns("customers", schema="lake")]
        assert columns == ["id", "name", "_kafka"]
        with engine.connect() as link:
            found = link.exec_driver_sql(JOIN.format(since=since(0))).fetchall()
        assert [tuple(row) for row in found] == expected(0)
    finally:
        engine.dispose()


def test_a_wrong_password_is_refused(server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        server.connect("wrong")


def test_a_million_rows_come_in_bounded_memory(server: Server) -> None:
    """330 MB of them; the server's own process keeps two portions of 64 MiB at most."""
    asked = "SELECT id, repeat('x', 320) FROM range(0, {}, 1, {})"  # the last: its partitions
    with server.connect() as link:
        list(link.cursor().stream(asked.format(150_000, 6), size=1000))  # what is loaded is loaded
        before = _peak_bytes(server.process.pid)
        last = -1
        for number, text in link.cursor().stream(asked.format(1_000_000, 40), size=1000):
            assert (number, len(text)) == (last + 1, 320)
            last = number
    assert last == 999_999
    grown = _peak_bytes(server.process.pid) - before
    assert grown < 160e6, f"grew by {grown / 1e6:.0f} MB"


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak in /proc")


def test_the_job_of_a_cancelled_query_ends(server: Server) -> None:
    with server.connect() as link:
        timer = threading.Timer(5, link.cancel)
        timer.start()
        started = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            link.execute("SELECT sum(a.id * b.id) FROM range(10000000) a, range(10000000) b")
        timer.join()
        assert time.monotonic() - started < 60
        assert link.execute("SELECT 1").fetchone() == (1,)
    assert _idle_soon(server)


def _idle_soon(server: Server) -> bool:
    """Whether the JVM comes to rest: with the job it would use both cores."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        before = server.java_cpu_seconds()
        time.sleep(2)
        if server.java_cpu_seconds() - before < 0.6:
            return True
    return False
