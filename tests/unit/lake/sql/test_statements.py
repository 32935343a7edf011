"""What a text is before anything is parsed: kinds, refusals, parameters, JSON paths, pieces."""

from __future__ import annotations

import pytest

from neve.lake.sql.errors import QueryError, RefusedError
from neve.lake.sql.json_paths import as_written, with_json_paths
from neve.lake.sql.statements import (
    Kind,
    Splice,
    blank_comments,
    explained_query,
    kind_of,
    spliced,
    split,
    tokens_of,
    with_named_parameters,
    with_offset_as_column,
)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", Kind.QUERY),
        ("-- a remark\nwith a as (select 1) select * from a;", Kind.QUERY),
        ("(SELECT 1) UNION (SELECT 2)", Kind.QUERY),
        ("VALUES (1)", Kind.QUERY),
        ("FROM orders SELECT key", Kind.QUERY),
        ("TABLE orders", Kind.QUERY),
        ("EXPLAIN SELECT 1", Kind.EXPLAIN),
        ("desc orders", Kind.DESCRIBE),
        ("show tables;", Kind.SHOW_TABLES),
        ("SHOW FUNCTIONS", Kind.SHOW),
    ],
)
def test_kinds(sql: str, kind: Kind) -> None:
    assert kind_of(tokens_of(sql)) == kind


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1)",
        "DROP TABLE orders",
        "CREATE TABLE t AS SELECT 1",
        "SET spark.sql.ansi.enabled=false",
        "CACHE TABLE t",
        "EXECUTE IMMEDIATE 'DROP TABLE t'",
        "ADD JAR 'x.jar'",
        "SELECT TRANSFORM(1) US${a}ING 'id'",
        "SELECT ${env:HOME}",
    ],
)
def test_only_reading_is_done(sql: str) -> None:
    with pytest.raises(RefusedError):
        kind_of(tokens_of(sql))


def test_what_only_looks_like_a_change_is_read() -> None:
    sql = "SELECT `insert`, 'INSERT INTO t', '${env:HOME}', `${a}`, reflect FROM t JOIN u USING (k)"
    assert kind_of(tokens_of(sql)) == Kind.QUERY


def test_columns_may_be_called_like_changes() -> None:
    sql = "SELECT delete, update, (merge) AS using FROM t WHERE update.set > count(delete)"
    assert kind_of(tokens_of(sql)) == Kind.QUERY


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("SELECT 1 -- one\\\n, 2", "SELECT 1         \n, 2"),
        ("SELECT /* a /* b */ c */ '--x' /*+ no hint */, `/**/`", "SELECT '--x' , `/**/`"),
        ("SELECT 5L, 1.5BD -- end", "SELECT 5L, 1.5BD"),
        ("SELECT /*+ BROADCAST(a) */ 1 -- end", "SELECT /*+ BROADCAST(a) */ 1"),
    ],
)
def test_comments_are_blanked_so_that_spark_reads_the_same_query(sql: str, same: str) -> None:
    found = blank_comments(sql)
    assert found.split() == same.split()
    assert all(found[t.start : t.end + 1] == sql[t.start : t.end + 1] for t in tokens_of(sql))


def test_show_tables_with_more_words_is_spark_s_own() -> None:
    assert kind_of(tokens_of("SHOW TABLES LIKE 'x'")) == Kind.SHOW


@pytest.mark.parametrize("sql", ["", "  ;; ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 'open"])
def test_one_whole_statement_is_wanted(sql: str) -> None:
    with pytest.raises(QueryError):
        tokens_of(sql)


def test_explain_gives_the_query_and_the_mode() -> None:
    assert explained_query("EXPLAIN SELECT 1 ;") == ("SELECT 1", "simple")
    assert explained_query("explain  formatted\nSELECT 1") == ("SELECT 1", "formatted")


@pytest.mark.parametrize(
    "sql", ["EXPLAIN", "EXPLAIN SHOW TABLES", "EXPLAIN INSERT INTO t SELECT 1"]
)
def test_only_queries_are_explained(sql: str) -> None:
    with pytest.raises(QueryError):
        explained_query(sql)


def test_parameters_get_names() -> None:
    sql = "SELECT ?::STRING, '?', $2::INT FROM t WHERE a = $1"
    text, values = with_named_parameters(sql, tokens_of(sql), ["x", 5])
    assert text == (
        "SELECT :neve_parameter_1::STRING, '?', :neve_parameter_2::INT FROM t "
        "WHERE a = :neve_parameter_1"
    )
    assert values == {"neve_parameter_1": "x", "neve_parameter_2": 5}


@pytest.mark.parametrize("given", [[], [1], [1, 2, 3]])
def test_the_number_of_parameters_is_checked(given: list[object]) -> None:
    sql = "SELECT ?, ?"
    with pytest.raises(QueryError, match="2 parameters"):
        with_named_parameters(sql, tokens_of(sql), given)


def test_splices_are_made_from_left_to_right() -> None:
    assert spliced("abcdef", [Splice(4, 5, "E"), Splice(1, 3, ""), Splice(5, 5, "-")]) == "adE-f"


def test_offset_behind_where_is_a_column() -> None:
    sql = "SELECT 1 FROM x WHERE offset IN (1) AND offset > 0 ORDER BY 1 LIMIT 5 OFFSET 3"
    assert with_offset_as_column(sql) == sql.replace("WHERE offset", "WHERE `offset`")


def test_a_text_is_cut_at_semicolons_outside_quotes() -> None:
    assert split("SELECT ';'; SELECT 2 ; SELECT") == (["SELECT ';'", "SELECT 2"], " SELECT")
    assert split("SELECT 'open;") == ([], "SELECT 'open;")
    assert split("SELECT 1") == ([], "SELECT 1")


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("value:customer.id", "$.customer.id"),
        ("value:items[0].price", "$.items[0].price"),
        ("value:items[*].price", "$.items[*].price"),
        ("value:['odd name'].x", r"$[\'odd name\'].x"),
        ("value:`odd name`", r"$[\'odd name\']"),
        ("value:order.date", "$.order.date"),
        ("VALUE:a", "$.a"),
    ],
)
def test_json_paths_are_written_out(given: str, path: str) -> None:
    base = given.partition(":")[0]
    wanted = f"SELECT get_json_object(CAST({base} AS STRING), '{path}') FROM t"
    assert with_json_paths(f"SELECT {given} FROM t") == wanted


def test_json_paths_of_qualified_columns_and_casts() -> None:
    found = with_json_paths("SELECT o.value:a.b::double, `o`.`key`:c FROM t WHERE o.value:d = 1")
    assert found == (
        "SELECT get_json_object(CAST(o.value AS STRING), '$.a.b')::double, "
        "get_json_object(CAST(`o`.`key` AS STRING), '$.c') FROM t "
        "WHERE get_json_object(CAST(o.value AS STRING), '$.d') = 1"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT value::string FROM t",
        "SELECT 'value:a' FROM t",
        "SELECT v:a, parse_json(value):a FROM t",
        "SELECT value FROM t WHERE value = :name",
        "SELECT value -- value:a",
    ],
)
def test_other_colons_stay(sql: str) -> None:
    assert with_json_paths(sql) == sql


def test_columns_are_called_as_they_were_written() -> None:
    name = "max(get_json_object(CAST(value AS STRING), $.a.b))"
    assert as_written(name) == "max(value:a.b)"
    assert as_written("get_json_object(CAST(key AS STRING), $['a b'])") == "key:['a b']"
    assert as_written("value") == "value"


@pytest.mark.parametrize("sql", ["SELECT value:a. FROM t", "SELECT value:a[x] FROM t"])
def test_half_a_path_is_refused(sql: str) -> None:
    with pytest.raises(QueryError):
        with_json_paths(sql)
