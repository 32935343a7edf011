"""Statements that try to reach beyond the bucket, and clients that try to bring a server down."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.spark_topics import BEGIN_MS, Sent, Topics

pytestmark = pytest.mark.slow

USER, PASSWORD = "ana", "correct horse"
SECONDS = 120
REFUSED = "42501"
_READY = re.compile(r"postgres \S+:(\d+)")


@dataclass(frozen=True)
class Server:
    """A server process with its Spark."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            dbname="neve",
            user=USER,
            password=PASSWORD,
            autocommit=True,
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    topics = Topics.start(folder)
    topics.create("orders", 1)
    topics.produce("orders", 0, [Sent(b"k", b"v", (), BEGIN_MS)])
    topics.stop()
    (folder / "users").write_text(f"{USER}:{PASSWORD}\n")
    command = [sys.executable, "-m", "neve.cli", "sql", "--serve", "127.0.0.1:0"]
    command += ["--store", topics.store, "--users", str(folder / "users"), "--master", "local[2]"]
    command += ["--conf", f"spark.local.dir={folder}", "--conf", "spark.driver.memory=600m"]
    command += ["--row-bytes-max", "10000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = _READY.search(process.stdout.readline())
    assert found is not None
    yield Server(process, int(found[1]), folder)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)


@pytest.fixture(scope="module")
def link(server: Server) -> Iterator[psycopg.Connection[Any]]:
    with server.connect() as made:
        yield made


RUNS_PROGRAMS = [
    "SELECT TRANSFORM(1) USING 'id'",
    "SELECT TRANSFORM(1) US${a}ING 'id'",
    "select transform(key) using 'cat' as (x) from orders",
    "FROM orders MAP key USING 'cat' AS x",
    "FROM orders REDUCE key USING 'cat' AS x",
    "SELECT * FROM (SELECT TRANSFORM(1) USING 'id')",
    "WITH a AS (SELECT TRANSFORM(1) USING 'id' AS (x)) SELECT x FROM a",
    "SELECT TRANSFORM(1)/**/USING/**/'id'",
    "SELECT TRANSFORM(1) USING -- remark\n 'id'",
    "SELECT (SELECT TRANSFORM(1) USING 'id' AS (x))",
    "EXPLAIN SELECT TRANSFORM(1) USING 'id'",
    "EXPLAIN EXTENDED SELECT TRANSFORM(1) USING 'id'",
]
CALLS = [
    "SELECT reflect('java.lang.System', 'getenv', 'PATH')",
    "SELECT Reflect ('java.lang.System', 'getenv', 'PATH')",
    "SELECT `reflect`('java.lang.System', 'getenv', 'PATH')",
    "SELECT \"reflect\"('java.lang.System', 'getenv', 'PATH')",
    "SELECT reflect/**/('java.lang.System', 'getenv', 'PATH')",
    "SELECT builtin.reflect('java.lang.System', 'getenv', 'PATH')",
    "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'PATH')",
    "SELECT system.`builtin`.`try_reflect`('java.lang.System', 'getenv', 'PATH')",
    "SELECT java_method('java.lang.System', 'exit', 1)",
    "SELECT /*+ BROADCAST(orders) */ java_method('java.lang.System', 'exit', 1) FROM orders",
    "SELECT try_reflect('java.lang.System', 'getenv', 'PATH')",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'PATH')",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv', 'PATH')",
    "VALUES (1, reflect('java.lang.System', 'getenv', 'PATH'))",
    "SELECT transform(array(1), x -> reflect('java.lang.System', 'exit', x))",
    "SELECT 1 WHERE EXISTS (SELECT reflect('java.lang.System', 'getenv', 'PATH'))",
    "SELECT 1 IN (SELECT reflect('java.lang.System', 'getenv', 'PATH'))",
    "SELECT 1 ORDER BY reflect('java.lang.System', 'getenv', 'PATH')",
    "SELECT 1 LIMIT reflect('java.lang.Integer', 'bitCount', 1)",
    "SELECT count(*) FILTER (WHERE reflect('java.lang.System', 'getenv', 'A') = '') FROM orders",
    "SELECT rank() OVER (ORDER BY reflect('java.lang.System', 'getenv', 'A')) FROM orders",
    "SELECT * FROM orders LATERAL VIEW explode(split(reflect('a.B', 'c'), ',')) AS x",
    "SELECT * FROM orders o JOIN orders p ON o.key = reflect('java.lang.System', 'getenv', 'A')",
    "SELECT 1 FROM range(1) |> EXTEND reflect('java.lang.System', 'getenv', 'PATH') AS x",
    "SELECT CASE WHEN 1 = 1 THEN reflect('java.lang.System', 'getenv', 'PATH') END",
    "SELECT nobody.knows(1)",
    "SELECT spark_catalog.default.knows(1)",
]
READS_FILES = [
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', 'http://127.0.0.1:1/'))",
    "SELECT xpath_string('<!DOCTYPE a [<!ENTITY b SYSTEM \"file:/etc/hosts\">]><a>&b;</a>', 'a')",
    "SELECT xpath('<!DOCTYPE a SYSTEM \"http://127.0.0.1:1/\"><a/>', 'a')",
    "SELECT XPATH_Boolean('<a/>', 'a')",
    "SELECT * FROM csv.`/etc/passwd`",
    'SELECT * FROM text."/etc/passwd"',
    "SELECT * FROM parquet.`file:///etc`",
    "SELECT * FROM binaryFile . `/etc/passwd`",
    "FROM text.`/etc/passwd` |> SELECT *",
    "TABLE text.`/etc/passwd`",
    "WITH a AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM a",
    "SELECT (SELECT count(*) FROM json.`/etc/passwd`)",
    "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
    "SELECT * FROM IDENTIFIER('text' || '.`/etc/passwd`')",
    "SELECT input_file_name() FROM orders",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT from_protobuf(value, 'a', '/etc/passwd') FROM orders",
]
CHANGES = [
    "INSERT OVERWRITE LOCAL DIRECTORY '{folder}' USING csv SELECT 1",
    "FROM orders INSERT OVERWRITE LOCAL DIRECTORY '{folder}' USING csv SELECT 1",
    "WITH a AS (SELECT 1) INSERT OVERWRITE LOCAL DIRECTORY '{folder}' USING csv SELECT * FROM a",
    "WITH a AS (SELECT 1) INS${a}ERT OVERWRITE LOCAL DIRECTORY '{folder}' USING csv SELECT 1",
    "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
    "WITH a AS (SELECT 1) MERGE INTO t USING a ON true WHEN MATCHED THEN DELETE",
    "WITH a AS (SELECT 1) DELETE FROM t",
    "WITH a AS (SELECT 1) UPDATE t SET x = 1",
    "FROM a INSERT WITH SCHEMA EVOLUTION INTO TABLE t SELECT 1",
    "CREATE TABLE t USING csv LOCATION '{folder}' AS SELECT 1",
    "CREATE TEMPORARY VIEW t USING csv OPTIONS (path '/etc/passwd')",
    "CREATE FUNCTION f AS 'a.B' USING JAR 'http://127.0.0.1:1/a.jar'",
    "CREATE TEMPORARY FUNCTION f(a INT) RETURNS INT RETURN reflect('a.B', 'c')",
    "ADD JAR 'http://127.0.0.1:1/a.jar'",
    "ADD FILE '/etc/passwd'",
    "LIST FILES",
    "CACHE TABLE t AS SELECT 1",
    "EXECUTE IMMEDIATE 'SELECT reflect(1)'",
    "CALL anything()",
    "USE spark_catalog",
    "REFRESH TABLE orders",
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t",
    "EXPLAIN INSERT OVERWRITE LOCAL DIRECTORY '{folder}' USING csv SELECT 1",
    "SHOW CREATE TABLE orders",
    "SHOW CATALOGS",
    "SELECT /*+ REPARTITION(2000000000) */ * FROM orders",
]


WITH_PARAMETERS: list[tuple[str, tuple[object, ...]]] = [
    ("SELECT reflect(%s::text, 'getenv', 'PATH')", ("java.lang.System",)),
    ("SELECT TRANSFORM(%s::text) USING 'id'", ("a",)),
    ("SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', %s::text))", ("/etc/passwd",)),
    ("SELECT IDENTIFIER(%s::text)('java.lang.System', 'getenv', 'PATH')", ("reflect",)),
    ("SELECT xpath_string(%s::text, 'a') FROM orders WHERE offset = %s", ("<a/>", 0)),
]
ALLOWED: list[tuple[str, tuple[object, ...]]] = [
    ("SELECT '${env:PATH}', '${spark.app.name}'", ("${env:PATH}", "${spark.app.name}")),
    ("SELECT reflect, transform FROM (SELECT 1 AS reflect, 2 AS transform)", (1, 2)),
    ("SELECT 'TRANSFORM(1) USING ''id''' -- reflect(1)", ("TRANSFORM(1) USING 'id'",)),
    ("SELECT /*+ BROADCAST(o) */ o.offset FROM orders o JOIN orders p USING (key)", (0,)),
    ("SELECT transform(array(1), x -> x + 1)[0], system.builtin.abs(-3)", (2, 3)),
    ("FROM orders |> WHERE offset = 0 |> AGGREGATE count(*) AS n", (1,)),
    ("WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5) TABLE t",
     (1,)),
    ("SELECT * FROM (SELECT 1 AS a, 'x' AS b) PIVOT (max(a) FOR b IN ('x'))", (1,)),
    ("SELECT max(v) FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (v FOR n IN (a, b))", (2,)),
    ("SELECT sum(id) OVER (PARTITION BY id ORDER BY id ROWS CURRENT ROW) FROM range(1)", (0,)),
    ("SELECT id FROM range(2) QUALIFY row_number() OVER (ORDER BY id DESC) = 1", (1,)),
    ("SELECT t.x, l.y FROM VALUES (1) t(x), LATERAL (SELECT x + 1 AS y) l", (1, 2)),
    ("SELECT x FROM VALUES (array(7)) t(a) LATERAL VIEW explode(a) AS x", (7,)),
    ("SELECT count(*) FROM VALUES (1, 2) t(a, b) GROUP BY CUBE (a, b)", (1,)),
    ("SELECT any_value(id), count(*) FROM (SELECT * FROM range(1)) TABLESAMPLE (1 ROWS)",
     (0, 1)),
    ("SELECT parse_json('{\"a\": 1}'):a::int, from_json('{\"a\": 2}', 'a INT').a", (1, 2)),
    ("SELECT extract(year FROM DATE '2020-01-01') + 1, substring('abc' FROM 2), trim(' a ')",
     (2021, "bc", "a")),
    ("SELECT * FROM (SELECT 1 UNION SELECT 1 INTERSECT SELECT 1 EXCEPT SELECT 2)", (1,)),
    ("SELECT 1 IN (SELECT 1) FROM range(1) DISTRIBUTE BY id SORT BY id", (True,)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "row"), ALLOWED)
def test_queries_that_are_no_danger_are_answered(
    link: psycopg.Connection[Any], sql: str, row: tuple[object, ...]
) -> None:
    assert link.execute(sql).fetchall()[:1] == [row]


@pytest.mark.parametrize(("sql", "values"), WITH_PARAMETERS)
def test_parameters_do_not_hide_what_is_refused(
    link: psycopg.Connection[Any], sql: str, values: tuple[object, ...]
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        link.execute(sql, values)
    assert raised.value.sqlstate == REFUSED, raised.value


def test_a_cursor_does_not_hide_what_is_refused(link: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.Error) as raised, link.transaction():
        link.execute("DECLARE c CURSOR FOR SELECT reflect('java.lang.System', 'getenv', 'PATH')")
    assert raised.value.sqlstate == REFUSED


def test_settings_of_spark_are_out_of_reach(link: psycopg.Connection[Any]) -> None:
    """SET is the session's own: it reaches nothing of Spark."""
    link.execute("SET spark.sql.variable.substitute = true")
    assert link.execute("SELECT '${env:PATH}'").fetchone() == ("${env:PATH}",)
    assert link.execute("SELECT count(*) FROM orders").fetchone() == (1,)


@pytest.mark.parametrize("sql", [*RUNS_PROGRAMS, *CALLS, *READS_FILES, *CHANGES])
def test_what_is_not_listed_is_refused(
    server: Server, link: psycopg.Connection[Any], sql: str
) -> None:
    folder = server.folder / "written"
    text = sql.replace("{folder}", str(folder))
    for prepared in (False, True):
        with pytest.raises(psycopg.Error) as raised:
            link.execute(text, prepare=prepared).fetchall()
        assert raised.value.sqlstate == REFUSED, raised.value
    assert not folder.exists()


# --- large rows and results, and a Spark that ends


def test_a_row_that_spark_cannot_hold_fails_alone(link: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.OutOfMemory, match=r"spark\.driver\.memory"):
        link.execute("SELECT repeat('x', 900000000 + id) FROM range(1)")
    assert link.execute("SELECT 1").fetchone() == (1,)


def test_a_row_beyond_the_limit_is_refused(link: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="--row-bytes-max"):
        link.execute("SELECT repeat('x', 20000000 + id) FROM range(1)")
    assert link.execute("SELECT 1").fetchone() == (1,)


def test_one_partition_of_large_rows_comes_batch_by_batch(
    server: Server, link: psycopg.Connection[Any]
) -> None:
    """More than the JVM could hold; the server's own process holds one batch."""
    asked = "SELECT id, repeat('x', 1000000) FROM range(0, {}, 1, 1)"
    list(link.cursor().stream(asked.format(20), size=5))  # what is loaded is loaded
    before = _memory_bytes(server.process.pid)
    rows = ((number, len(text)) for number, text in link.cursor().stream(asked.format(400), size=5))
    assert list(rows) == [(number, 1_000_000) for number in range(400)]
    assert _memory_bytes(server.process.pid) - before < 80e6
    assert list(server.folder.glob("neve-sql-*/*")) == []


def test_results_that_are_not_read_take_no_memory(
    server: Server, link: psycopg.Connection[Any]
) -> None:
    before = _memory_bytes(server.process.pid)
    links = [server.connect() for _ in range(6)]
    try:
        begun = []
        for each in links:
            rows = each.cursor().stream("SELECT repeat('x', 100000) FROM range(0, 600, 1, 1)")
            assert len(next(rows)[0]) == 100_000
            begun.append(rows)
        assert link.execute("SELECT 1").fetchone() == (1,)
        assert _memory_bytes(server.process.pid) - before < 120e6
    finally:
        for each in links:
            each.pgconn.finish()


def _memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no peak in /proc")


def test_the_server_ends_with_its_spark(server: Server) -> None:
    """The last one: nothing can be asked of this server afterwards."""
    with server.connect() as waiting, server.connect() as idle:
        begun = threading.Timer(1.0, os.kill, (_java_of(server.process.pid), signal.SIGKILL))
        begun.start()
        with pytest.raises(psycopg.OperationalError) as raised:
            waiting.execute("SELECT sum(a.id * b.id) FROM range(10000000) a, range(10000000) b")
        assert raised.value.sqlstate == "57P02", raised.value
        with pytest.raises(psycopg.OperationalError) as raised:
            idle.execute("SELECT 1")
        assert raised.value.sqlstate == "57P02", raised.value
    assert server.process.wait(SECONDS) == 5
    assert server.process.stderr is not None
    assert "Spark's JVM has exited with code -9" in server.process.stderr.read()


def _java_of(pid: int) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            if name.endswith("(java") and int(rest.split()[1]) == pid:
                return int(folder.name)
    raise AssertionError("the server has no JVM")
