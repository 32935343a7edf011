"""The PostgreSQL server with pgjdbc, as DBeaver, IntelliJ and programs in Java use it.

The program in `pgjdbc` runs once and says what it found; the tests look at it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance import installs
from conformance.java_client import QUICK_MACHINE
from neve.lake.pgwire import PostgresServer
from neve.lake.sql.statements import kind_of, tokens_of
from neve.runtime import BlockingRunner
from unit.lake.pgwire.fake_engine import BATCH_ROWS, FakeEngine, Result
from unit.lake.pgwire.wire_client import PASSWORD, USER

SOURCE = Path(__file__).resolve().parent / "pgjdbc"
SECONDS = 120

Row = dict[str, Any]


class ReadingEngine(FakeEngine):
    """Refuses what the real engine refuses."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, tag: str) -> Result:
        kind_of(tokens_of(sql))
        return super().execute(sql, parameters, tag=tag)


@dataclass(frozen=True)
class Found:
    """What each step of the program said, and the engine that it asked."""

    steps: dict[str, Row]
    engine: FakeEngine

    def answer(self, step: str) -> Any:
        said = self.steps[step]
        assert "error" not in said, said
        return said["answer"]

    def state(self, step: str) -> str:
        said = self.steps[step]
        assert "error" in said, said
        return str(said["state"])

    def columns(self, step: str, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.answer(step)]


@pytest.fixture(scope="module")
def found() -> Found:
    java = installs.command("java")
    libraries = installs.java_libraries(SOURCE, "pgjdbc")
    classes = installs.java_classes(libraries, SOURCE, "pgjdbc-questions")
    path = os.pathsep.join([str(classes), str(libraries / "*")])
    machine = [java, *QUICK_MACHINE, "-Duser.timezone=Asia/Kolkata", "-cp", path]
    engine = ReadingEngine()
    with BlockingRunner("pgjdbc-test") as runner:
        server = PostgresServer(engine, port=0, users={USER: PASSWORD})
        runner.run(server.start())
        try:
            done = subprocess.run(
                [*machine, "Questions", str(server.port), USER, PASSWORD],
                env=os.environ | {"LC_ALL": "C.UTF-8"},  # by which it reads its arguments
                capture_output=True,
                encoding="utf-8",
                check=False,
                timeout=SECONDS,
            )
        finally:
            runner.run(server.close())
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Exception" not in done.stderr, done.stderr[-3000:]
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    return Found({each["step"]: each for each in steps}, engine)


# --- what there is


def test_everything_that_metadata_offers_is_asked(found: Found) -> None:
    assert found.answer("not asked") == []


def test_databases_and_schemas(found: Found) -> None:
    assert found.answer("getCatalogs") == [{"TABLE_CAT": "neve"}]
    schemas = ["information_schema", "lake", "pg_catalog", "public"]
    assert found.columns("getSchemas", "TABLE_SCHEM") == [(name,) for name in schemas]
    assert found.columns("getSchemas like l%", "TABLE_SCHEM", "TABLE_CATALOG") == [("lake", "neve")]


def test_tables(found: Found) -> None:
    about = ("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS")
    clicks = ("neve", "lake", "clicks", "TABLE", None)
    assert found.columns("getTables", *about) == [
        clicks,
        ("neve", "public", "orders", "TABLE", None),
        ("neve", "public", "orders.v1", "TABLE", None),
    ]
    assert found.columns("getTables of a schema", *about) == [clicks]
    assert found.answer("getTables escaped") == []
    assert found.columns("getTables of the system", "TABLE_TYPE") == [("SYSTEM TABLE",)]
    assert {"TABLE_TYPE": "TABLE"} in found.answer("getTableTypes")


def test_columns(found: Found) -> None:
    about = ("COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "IS_NULLABLE", "ORDINAL_POSITION")
    assert found.columns("getColumns", *about) == [
        ("key", "bytea", -2, "YES", 1),
        ("value", "bytea", -2, "YES", 2),
        ("topic", "text", 12, "NO", 3),
        ("partition", "int4", 4, "NO", 4),
        ("offset", "int8", -5, "NO", 5),
        ("timestamp", "timestamptz", 93, "NO", 6),
    ]
    about = ("COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS")
    assert found.columns("getColumns of the lake", *about) == [
        ("id", "int8", -5, 19, 0),
        ("price", "numeric", 2, 10, 2),
        ("tags", "_text", 2003, 2147483647, 0),
        ("_kafka", "jsonb", 1111, 2147483647, 0),
    ]
    assert found.columns("getColumns by name", "TABLE_NAME", "COLUMN_NAME") == [
        ("orders", "offset")
    ]


def test_privileges(found: Found) -> None:
    about = ("TABLE_NAME", "GRANTEE", "PRIVILEGE", "IS_GRANTABLE")
    assert found.columns("getTablePrivileges", *about) == [("orders", "PUBLIC", "SELECT", "NO")]
    # The driver takes it that a column without privileges of its own has all of its owner's, and
    # says so of PostgreSQL too.
    grantees = found.columns("getColumnPrivileges", "COLUMN_NAME", "GRANTEE")
    assert set(grantees) == {("offset", "neve")}


@pytest.mark.parametrize(
    "step",
    [
        *("getPrimaryKeys", "getIndexInfo", "getIndexInfo unique", "getImportedKeys"),
        *("getExportedKeys", "getCrossReference", "getBestRowIdentifier", "getProcedures"),
        *("getProcedureColumns", "getFunctions", "getFunctionColumns", "getUDTs"),
    ],
)
def test_there_are_no_keys_and_no_functions(found: Found, step: str) -> None:
    assert found.answer(step) == []


@pytest.mark.parametrize(
    "step", ["getSuperTables", "getSuperTypes", "getAttributes", "getPseudoColumns"]
)
def test_what_the_driver_itself_does_not_do(found: Found, step: str) -> None:
    assert found.state(step) == "0A000"
    assert "not yet implemented" in found.steps[step]["error"]


def test_types(found: Found) -> None:
    types = dict(found.columns("getTypeInfo", "TYPE_NAME", "DATA_TYPE"))
    wanted = {"bool": -7, "int8": -5, "numeric": 2, "text": 12, "timestamptz": 93, "_text": 2003}
    assert types.items() >= wanted.items()


def test_facts(found: Found) -> None:
    facts = found.answer("facts")
    wanted = {
        "getDatabaseProductName": "PostgreSQL",
        "getDatabaseMajorVersion": 15,
        "getDriverMajorVersion": 42,
        "getUserName": USER,
        "getMaxColumnNameLength": 63,
        "getMaxColumnsInIndex": 32,
        "getSearchStringEscape": "\\",
    }
    assert facts.items() >= wanted.items()
    assert "limit" in facts["getSQLKeywords"].split(",")
    assert [name for name, value in facts.items() if "Exception" in str(value)] == []


# --- queries


def test_every_type_is_read_in_text_and_in_binary(found: Found) -> None:
    assert found.answer("one") == [1]
    values, nulls = found.answer("every type")
    assert values == {
        "bool": True,
        "int2": -2,
        "int4": 2**31 - 1,
        "int8": -(2**63),
        "float4": 1.5,
        "float8": -2.25,
        "numeric": -12345.67,
        "text": "grün 'n' \\ Bäume",
        "bytea": "00ff6869",
        "timestamptz": "2026-01-31 18:00:15.25",  # where the program runs
        "timestamp": "2026-01-31 12:30:15.25",
        "date": "1999-12-31",
        "time": "23:59:59",
        "uuid": "80000000-0000-0000-0000-000000000005",
        "jsonb": '{"a":1,"b":["x"]}',
        "map": '{"k":1}',
        "ints": [1, None, 3],
        "texts": ["a b", 'q"', "", "NULL", None],
    }
    assert set(nulls.values()) == {None}
    assert found.answer("every type in binary") == [values, nulls]


def test_columns_of_a_result(found: Found) -> None:
    assert found.columns("columns", "name", "type", "type_name", "class") == [
        ("bool", "BIT", "bool", "java.lang.Boolean"),
        ("int2", "SMALLINT", "int2", "java.lang.Integer"),
        ("int4", "INTEGER", "int4", "java.lang.Integer"),
        ("int8", "BIGINT", "int8", "java.lang.Long"),
        ("float4", "REAL", "float4", "java.lang.Float"),
        ("float8", "DOUBLE", "float8", "java.lang.Double"),
        ("numeric", "NUMERIC", "numeric", "java.math.BigDecimal"),
        ("text", "VARCHAR", "text", "java.lang.String"),
        ("bytea", "BINARY", "bytea", "[B"),
        ("timestamptz", "TIMESTAMP", "timestamptz", "java.sql.Timestamp"),
        ("timestamp", "TIMESTAMP", "timestamp", "java.sql.Timestamp"),
        ("date", "DATE", "date", "java.sql.Date"),
        ("time", "TIME", "time", "java.sql.Time"),
        ("uuid", "OTHER", "uuid", "java.util.UUID"),
        ("jsonb", "OTHER", "jsonb", "org.postgresql.util.PGobject"),
        ("map", "OTHER", "jsonb", "org.postgresql.util.PGobject"),
        ("ints", "ARRAY", "_int4", "java.sql.Array"),
        ("texts", "ARRAY", "_text", "java.sql.Array"),
    ]
    (numeric,) = (each for each in found.answer("columns") if each["name"] == "numeric")
    assert (numeric["precision"], numeric["scale"], numeric["signed"]) == (20, 4, True)
    assert found.answer("columns beforehand") == found.answer("columns")


def test_parameters_of_every_kind(found: Found) -> None:
    (once,) = found.answer("parameters")
    assert list(once.values()) == [
        *(7, -1, 2**40, 0.5, -2.25, 12.5, True, "it's \\ ? grün", "00ff"),
        # These two the driver sends as text without a type, with the zone of the program.
        *("2026-01-31 +05:30", "2026-01-31 12:30:15.25+05:30"),
        *("2026-01-31", "12:30:15", "2026-01-31 12:30:15.0", "2026-01-31 16:00:15.0"),
        *("00000000-0000-0000-0000-00000000000a", [1, None, 3], ["a b", 'q"', None]),
    ]
    assert found.answer("parameters prepared") == [once]
    assert found.answer("no value") == [{"p0": None, "p1": None, "p2": None}]
    assert found.answer("parameter types") == ["int8", "text", "text"]


def test_parameters_that_the_driver_writes_into_the_text(found: Found) -> None:
    assert found.answer("parameters in the text")
    (sql,) = (each for each, *_ in found.engine.executed if each.startswith("SELECT ('7'"))
    for written in (
        "('7'::SMALLINT), ('-1'::INT), ('1099511627776'::BIGINT)",
        "('it\\'s \\\\ ? grün')",
        "X'00ff'::BINARY",
        "('2026-01-31 12:30:15+02'::TIMESTAMP)",
    ):
        assert written in sql


def test_results_come_in_portions(found: Found) -> None:
    assert found.answer("portions") == [25_000, 2 * sum(range(25_000))]
    assert found.answer("beginning") == 2499
    # All results of the program but the one that it only began, and a batch or two of that.
    begun = 2 * 3 + 3 + 1 + 1
    assert 25_000 // BATCH_ROWS + 1 == 3
    assert found.engine.batches_made <= begun + 3


def test_results_in_other_ways(found: Found) -> None:
    assert found.answer("first rows") == [0, 1, 2]
    assert found.answer("back and forth") == [19, 4, 3]
    assert found.answer("several") == [[0, 1], 0, [1]]


# --- errors, ends and sessions


@pytest.mark.parametrize("step", ["insert", "update", "delete", "create", "drop"])
def test_writes_are_refused(found: Found, step: str) -> None:
    assert found.state(step) == "42501"


def test_an_error_has_a_state_a_hint_and_a_place(found: Found) -> None:
    assert found.state("error") == "42703"
    said = found.steps["error"]["error"]
    assert "no such column: nope" in said
    assert "Hint: Try another." in said
    assert "Position: 8" in said


def test_a_transaction_with_an_error(found: Found) -> None:
    assert found.answer("transaction") == ["42703", "25P02", [1]]
    # With a savepoint before each statement, which the driver goes back to by itself.
    assert found.answer("transaction that is saved") == ["42703", "no error: [1]", [1]]


def test_queries_are_ended(found: Found) -> None:
    for step, reason in (
        ("cancelled", "user request"),
        ("out of time", "user request"),
        ("out of the server's time", "statement timeout"),
    ):
        assert found.state(step) == "57014"
        assert reason in found.steps[step]["error"]
    hung = {tag for sql, _, tag in found.engine.executed if "hang()" in sql}
    assert len(hung) == 3
    assert hung <= set(found.engine.cancelled)
    assert found.answer("after a cancel") == found.answer("after all") == [1]


def test_settings(found: Found) -> None:
    assert found.answer("settings") == {
        "valid": True,
        "catalog": "neve",
        "schema": "public",
        "application": "a tool",
        "read only": True,
        "isolation": 2,  # read committed, whatever was asked for: there is no other
    }


@pytest.mark.parametrize("step", ["wrong password", "unknown user"])
def test_who_is_not_known_is_refused(found: Found, step: str) -> None:
    assert found.state(step) == "28P01"
