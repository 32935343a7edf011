"""Reading statements, and writing them for Spark: a value never becomes anything but a value."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from neve.lake.pgwire.commands import command_of
from neve.lake.pgwire.dialect import cast_parameters, translate
from neve.lake.pgwire.lexer import statements
from neve.lake.pgwire.sqlstate import SqlError


def spark(sql: str) -> str:
    (one,) = statements(sql)
    return translate(one).sql


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("SELECT 'a''b'", "SELECT 'a\\'b'"),
        (r"SELECT 'C:\new'", r"SELECT 'C:\\new'"),
        (r"SELECT E'a\'b\n\x41\u00e9'", "SELECT 'a\\'b\nAé'"),
        ("SELECT $$it's$$, $x$ $$ $x$", r"SELECT 'it\'s', ' $$ '"),
        ('SELECT "a""b`", "offset" FROM "orders.v1"', 'SELECT `a"b```, `offset` FROM `orders.v1`'),
        ("SELECT `a``b`, r'\\d', x'0A'", "SELECT `a``b`, r'\\d', x'0A'"),
        (r"SELECT '\x00fF'::bytea, '\x'::bytea", "SELECT X'00fF'::BINARY, X''::BINARY"),
        (r"SELECT '\x0'::bytea, '\x00'", r"SELECT '\\x0'::BINARY, '\\x00'"),
        ("SELECT $2, $1, $2", "SELECT ?, ?, ?"),
        ("SELECT '$1' -- $2", "SELECT '$1' -- $2"[:11]),
        ("SELECT a::text, b::int8, c::varchar(3)", "SELECT a::STRING, b::BIGINT, c::VARCHAR(3)"),
        ("SELECT CAST(f(a, b) AS VARCHAR)", "SELECT CAST(f(a, b) AS STRING)"),
        ("SELECT (SELECT 1 AS text)", "SELECT (SELECT 1 AS text)"),
        ("SELECT a::timestamp with time zone AS t", "SELECT a::TIMESTAMP AS t"),
        ("SELECT a::timestamp without time zone", "SELECT a::TIMESTAMP_NTZ"),
        ("SELECT a::pg_catalog.int4, a::decimal(5,2)", "SELECT a::INT, a::DECIMAL(5,2)"),
        ("SELECT a::date, a::double precision", "SELECT a::date, a::DOUBLE"),
        ("SELECT $1::text[], a::date[]", "SELECT ?::ARRAY<STRING>, a::ARRAY<date>"),
        ("SELECT a::int [ 1 ]", "SELECT a::int [ 1 ]"),
        ("FROM public.orders |> WHERE a", "FROM public.orders |> WHERE a"),
    ],
)
def test_what_the_two_write_differently_is_written_anew(written: str, read: str) -> None:
    assert spark(written) == read


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_a_quoted_value_stays_that_value(value: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"
    written = spark(f"SELECT {quoted} AS x")
    tree = sqlglot.parse_one(written, read="spark")
    (literal,) = tree.find_all(exp.Literal)
    assert literal.is_string
    assert literal.this == value


@given(st.text(max_size=60) | st.text("'\"`$\\;-/* e1a\n", max_size=40))
def test_any_text_is_read_or_refused(sql: str) -> None:
    found, code = [], ""
    try:
        found = statements(sql)
    except SqlError as error:
        code = error.code
    assert code in ("", "42601", "42P02", "22025")
    for one in found:
        assert one.tokens
        assert sql[one.offset : one.offset + len(one.text)] == one.text
        translate(one)


def test_a_cast_says_what_a_parameter_is() -> None:
    (one,) = statements(
        "SELECT $3::character varying[], $1::int, $2::int4 [], $4::nonsense[], $5[, $6::date, "
        "cast($7 AS double precision), $8::numeric(5, 2), $9::text, '$1' :: int, CAST($10 as BIGINT"
    )
    assert cast_parameters(one) == {0: 23, 1: 1007, 2: 1015, 6: 701, 7: 1700, 9: 20}


def test_scripts_are_cut_at_semicolons_that_mean_it() -> None:
    found = statements("a ';' \"x;\" /* ; /* ; */ ; */ -- ;\n b; ;; $q$;$q$; `;`")
    assert [one.tokens[0].value for one in found] == ["a", ";", ";"]
    assert len(found) == 3


@pytest.mark.parametrize("sql", ["'a", '"a', "`a", "/* a /* b */", "$x$ a", "E'\\'"])
def test_what_never_ends_is_refused_with_its_place(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        statements(f"SELECT {sql}")
    assert caught.value.code == "42601"
    assert caught.value.position >= 8


def test_places_lead_back_to_the_client_s_text() -> None:
    (one,) = statements("SELECT \"a\", 'it''s', $1::varchar, nope FROM t")
    written = translate(one)
    assert one.text[written.position(written.sql.index("nope") + 1) - 1 :].startswith("nope")
    assert one.text[written.position(written.sql.index("FROM") + 1) - 1 :].startswith("FROM")


@pytest.mark.parametrize(
    ("sql", "name", "subject", "value"),
    [
        ("SET search_path TO a, b", "set", "search_path", "a, b"),
        ("set session statement_timeout = '5s'", "set", "statement_timeout", "5s"),
        ("SET NAMES 'utf8'", "set", "client_encoding", "utf8"),
        ("SET TIME ZONE 'UTC'", "set", "timezone", "UTC"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "no-op", "", ""),
        ("SHOW TRANSACTION ISOLATION LEVEL", "show", "transaction_isolation", ""),
        ("RESET ALL", "reset", "all", ""),
        ("ABORT", "rollback", "", ""),
        ("DEALLOCATE PREPARE x", "deallocate", "x", ""),
        ("UNLISTEN *", "no-op", "", ""),
    ],
)
def test_commands_are_recognised(sql: str, name: str, subject: str, value: str) -> None:
    (one,) = statements(sql)
    command = command_of(one)
    assert command is not None
    assert (command.name, command.subject, command.value) == (name, subject, value)


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "SHOW TABLES", "SHOW COLUMNS IN t", "WITH a AS (SELECT 1) SELECT 1", "(x)"]
)
def test_queries_are_no_commands(sql: str) -> None:
    (one,) = statements(sql)
    assert command_of(one) is None
