"""Which columns and rows each reference of a query needs; and that nothing is left out that counts."""

# ruff: noqa: E501  (a query reads best on one line)
from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from neve.errors import UnsupportedError
from neve.lake.sql.analysis import Analysis, RelationReference, analyse
from neve.lake.sql.literals import Constants
from neve.lake.sql.ranges import EVERYTHING, HIGHEST, LOWEST, Ranges, Span, ranges_of
from neve.lake.sql.statements import tokens_of
from neve.lake.sql.topics import COLUMNS, range_options

NOW_MS = 1_700_000_000_000
UTC_ZONE = Constants(ZoneInfo("UTC"))
ALL = list(COLUMNS)


def looked_over(sql: str, constants: Constants = UTC_ZONE) -> Analysis:
    return analyse(sql, tokens_of(sql), constants)


def columns(reference: RelationReference) -> list[str]:
    return [name for name in COLUMNS if reference.needs(name)]


def needs(sql: str) -> list[list[str]]:
    return [columns(reference) for reference in looked_over(sql).references]


def ranges(sql: str, constants: Constants = UTC_ZONE) -> list[Ranges]:
    references = looked_over(sql, constants).references
    return [ranges_of(reference.predicate, constants, NOW_MS) for reference in references]


def from_offset(number: int) -> Ranges:
    return Ranges(offsets=Span(number))


# --- references


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("SELECT 1", []),
        ("SELECT * FROM range(5)", []),
        ("SELECT * FROM `a-b`", [("a-b",)]),
        ("SELECT * FROM a.b.c x, d", [("a", "b", "c"), ("d",)]),
        ("WITH o AS (SELECT * FROM orders) SELECT * FROM o", [("orders",)]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", [("orders",)]),
        ("WITH a AS (SELECT * FROM x), b AS (SELECT * FROM a) SELECT * FROM b, a", [("x",)]),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM b, a", [("a",)]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a), a", [("a",)]),
        ("WITH a AS (SELECT 1) SELECT * FROM ns.a", [("ns", "a")]),
        (
            "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r) SELECT * FROM r",
            [],
        ),
        ("SELECT (SELECT max(offset) FROM a) FROM b WHERE EXISTS (SELECT 1 FROM c)", "abc"),
        ("(SELECT 1 FROM a UNION SELECT 2 FROM b) EXCEPT SELECT 3 FROM c", "abc"),
        ("SELECT * FROM a LEFT JOIN b ON true, LATERAL (SELECT * FROM c)", "abc"),
    ],
)
def test_every_place_is_found(sql: str, parts: list[tuple[str, ...]] | str) -> None:
    wanted = [(letter,) for letter in parts] if isinstance(parts, str) else parts
    found = looked_over(sql)
    assert [reference.parts for reference in found.references] == wanted
    assert found.understood
    for reference in found.references:
        assert sql[reference.start : reference.end].replace("`", "") == ".".join(reference.parts)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("WITH o AS (SELECT * FROM o WHERE offset < 3) FROM o |> SELECT key", 1),
        ("WITH a AS (SELECT 1), o(x) AS (SELECT * FROM a) FROM o |> SELECT x", 0),
        ("WITH o (SELECT 1) SELECT * FROM o JOIN a ON true |> LIMIT 1", 1),
        ("WITH b AS (SELECT * FROM o), o AS (SELECT 1) FROM b JOIN o ON true |> LIMIT 1", 1),
        ("FROM (WITH o AS (SELECT 1) SELECT * FROM o) JOIN o ON true |> LIMIT 1", 1),
        ("WITH RECURSIVE o(n) AS (SELECT 1 UNION ALL SELECT n FROM o) FROM o |> LIMIT 1", 0),
        ("WITH RECURSIVE o MAX RECURSION LEVEL 5 AS (SELECT 1) FROM o |> LIMIT 1", 0),
        (
            "WITH RECURSIVE a(n) MAX RECURSION LEVEL 5 AS (SELECT 1), o AS (FROM a) FROM o |> LIMIT 1",
            0,
        ),
        ("WITH o AS (SELECT 1) FROM ns.o |> LIMIT 1", 1),
    ],
)
def test_with_expressions_hide_topics_where_only_tokens_are_read(sql: str, found: int) -> None:
    analysis = looked_over(sql)
    assert not analysis.understood
    assert len(analysis.references) == found


@pytest.mark.parametrize(
    ("sql", "before"),
    [
        ("SELECT key FROM orders WHERE true", "SELECT key FROM orders"),
        ("SELECT * FROM orders TABLESAMPLE (5 ROWS)", "SELECT * FROM orders TABLESAMPLE (5 ROWS)"),
        (
            "SELECT * FROM orders TABLESAMPLE (BUCKET 1 OUT OF 2) REPEATABLE (3) WHERE true",
            "SELECT * FROM orders TABLESAMPLE (BUCKET 1 OUT OF 2) REPEATABLE (3)",
        ),
        ("SELECT key FROM orders AS o", None),
        ("SELECT key FROM orders o", None),
    ],
)
def test_where_an_alias_has_to_stand(sql: str, before: str | None) -> None:
    (reference,) = looked_over(sql).references
    assert reference.alias_at == (None if before is None else len(before))


@pytest.mark.parametrize(
    "sql",
    [
        "FROM orders |> WHERE offset > 5 |> SELECT key",
        "SELECT IDENTIFIER('key') FROM orders WHERE offset > 5",
        "TABLE orders",
        "SELECT ~~~ key FROM orders WHERE offset > 5 %% !!",
    ],
)
def test_what_is_not_understood_is_read_whole(sql: str) -> None:
    found = looked_over(sql)
    assert not found.understood
    (reference,) = found.references
    assert reference.parts == ("orders",)
    assert columns(reference) == ALL
    assert reference.predicate is None


def test_earlier_versions_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="AS OF"):
        looked_over("SELECT * FROM t VERSION AS OF 5")


def test_names_with_namespaces_stay_good_qualifiers() -> None:
    sql = "SELECT sales.orders.id FROM sales.orders WHERE o.sales.id = 1"
    (edit,) = looked_over(sql).edits
    assert sql[edit.start : edit.end] == "sales.orders"
    assert edit.text == "`orders`"


# --- columns


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT key FROM orders", ["key"]),
        ("SELECT KEY, `timestamptype` FROM orders", ["key", "timestampType"]),
        ("SELECT count(*) FROM orders", []),
        ("SELECT * FROM orders", ALL),
        ("SELECT count(DISTINCT *) FROM orders", ALL),
        ("SELECT count(o.*) FROM orders o", ALL),
        ("SELECT struct(*) FROM orders", ALL),
        ("SELECT x.* FROM orders o", []),
        ("SELECT topic.* FROM orders o", ["topic"]),
        ("SELECT key FROM orders WHERE offset > 1 ORDER BY value", ["key", "value", "offset"]),
        ("SELECT * FROM (SELECT key FROM orders)", ["key"]),
        ("SELECT key FROM (SELECT * FROM orders)", ALL),
        ("SELECT n FROM (SELECT partition, count(*) n FROM orders GROUP BY 1)", ["partition"]),
        ("SELECT o.k FROM orders AS o(k, v, t, p, f, ts, tt, h)", ALL),
        ("SELECT key FROM orders PIVOT (count(1) FOR partition IN (0))", ALL),
        ("SELECT h.key FROM orders LATERAL VIEW explode(headers) x AS h", ["key", "headers"]),
        ("SELECT topic.x FROM orders", ["topic"]),
        ("SELECT max(value) OVER (PARTITION BY key) FROM orders", ["key", "value"]),
        ("SELECT sum(offset) FILTER (WHERE partition = 1) FROM orders", ["partition", "offset"]),
        ("SELECT get_json_object(CAST(value AS STRING), '$.key') FROM orders", ["value"]),
    ],
)
def test_columns(sql: str, wanted: list[str]) -> None:
    assert needs(sql) == [wanted]


@pytest.mark.parametrize(
    ("sql", "first", "second"),
    [
        ("SELECT a.key, b.value FROM o a JOIN o b ON a.topic = b.topic", "key topic", "value topic"),
        ("SELECT a.key, b.value FROM o a JOIN o b USING (offset)", "key offset", "value offset"),
        ("SELECT a.*, b.value FROM o a JOIN o b USING (offset)", " ".join(ALL), "value offset"),
        ("SELECT a.key FROM o a NATURAL JOIN o b", " ".join(ALL), " ".join(ALL)),
        ("SELECT key FROM o UNION ALL SELECT value FROM o", "key value", "key value"),
        ("SELECT a.key FROM o a WHERE EXISTS (SELECT * FROM o b WHERE b.topic = a.key)", "key", "topic"),
        ("SELECT a.key FROM o a WHERE a.key IN (SELECT b.value FROM o b)", "key", "value"),
    ],
)  # fmt: skip
def test_columns_of_two_places(sql: str, first: str, second: str) -> None:
    assert needs(sql) == [first.split(), second.split()]


def test_a_bare_name_may_mean_any_relation_around_it() -> None:
    """Were `offset` left out of the inner relation, it would quietly mean the outer one's."""
    sql = "SELECT a.key FROM orders a WHERE EXISTS (SELECT 1 FROM orders b WHERE offset = 5)"
    assert needs(sql) == [["key", "offset"], ["offset"]]


# --- rows


@pytest.mark.parametrize(
    "condition",
    [
        "offset >= 5",
        "offset > 4",
        "5 <= offset",
        "NOT offset < 5",
        "(offset >= 5 AND length(key) > 3)",
        "offset >= 5 AND (offset > 1 OR key IS NULL)",
        "offset >= 5 OR offset BETWEEN 7 AND 9",
        "offset >= 5L",
        "offset > 4.5 AND offset >= 5",
        "offset >= '5'",
        "orders.offset >= 5",
    ],
)
def test_an_offset_from_which_on(condition: str) -> None:
    assert ranges(f"SELECT key FROM orders WHERE {condition}") == [from_offset(5)]


@pytest.mark.parametrize(
    "condition",
    [
        "offset >= 5 OR key = 'a'",
        "NOT (offset >= 5 AND partition = 1)",
        "offset + 1 >= 5",
        "offset <> 5",
        "offset IS NULL",
        "coalesce(offset, 9) >= 5",
        "CASE WHEN offset >= 5 THEN true ELSE true END",
        "(offset >= 5) IS NOT TRUE",
        "(offset >= 5) = false",
        "offset >= 5 IS NULL",
        "offset IN (SELECT 5)",
        "offset NOT IN (1, 2)",
        "offset = partition",
        "offset >= 'x'",
        "timestamp >= 'yesterday'",
        "timestamp < now()",
        "timestamp <= current_timestamp() - INTERVAL 5 MINUTES",
        "offset IN (1, 2, length(key))",
        "key = 'a'",
        "partition > 0",
        "o.offset >= 5",
    ],
)
def test_what_says_nothing_certain_leaves_every_row(condition: str) -> None:
    assert ranges(f"SELECT key FROM orders WHERE {condition}") == [EVERYTHING]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("offset = 5", Ranges(offsets=Span(5, 6))),
        ("offset <=> 5", Ranges(offsets=Span(5, 6))),
        ("offset IN (9, 3)", Ranges(offsets=Span(3, 10))),
        ("offset BETWEEN 3 AND 9", Ranges(offsets=Span(3, 10))),
        ("offset < 3 AND offset > 9", Ranges(offsets=Span(10, 3))),
        ("offset < -1", Ranges(offsets=Span(LOWEST, -1))),
        ("offset > 99999999999999999999", Ranges(offsets=Span(HIGHEST))),
        ("partition = 1", Ranges(partitions=frozenset({1}))),
        ("partition IN (1, 3)", Ranges(partitions=frozenset({1, 3}))),
        ("partition = 1 AND partition IN (2, 3)", Ranges(partitions=frozenset())),
        ("partition = 1 OR partition = 2", Ranges(partitions=frozenset({1, 2}))),
        (
            "(partition = 1 AND offset < 5) OR (partition = 2 AND offset >= 90)",
            Ranges(partitions=frozenset({1, 2})),
        ),
        (
            "timestamp >= '2024-01-01' AND timestamp < TIMESTAMP '2024-01-01 00:00:01'",
            Ranges(times_ms=Span(1_704_067_200_000, 1_704_067_201_000)),
        ),
        ("timestamp > '2024-01-01 00:00:00.0005'", Ranges(times_ms=Span(1_704_067_200_000))),
        ("timestamp > DATE '2024-01-01'", Ranges(times_ms=Span(1_704_067_200_001))),
        ("timestamp >= '2024-01-01T02:00:00+02:00'", Ranges(times_ms=Span(1_704_067_200_000))),
        ("timestamp > now() - INTERVAL 5 MINUTES", Ranges(times_ms=Span(NOW_MS - 360_000))),
        ("timestamp > current_timestamp() - INTERVAL '1' DAY", Ranges(times_ms=Span(NOW_MS - 93_660_000))),
    ],
)  # fmt: skip
def test_ranges(condition: str, wanted: Ranges) -> None:
    assert ranges(f"SELECT key FROM orders WHERE {condition}") == [wanted]


def test_texts_are_moments_of_the_session_s_zone() -> None:
    berlin = Constants(ZoneInfo("Europe/Berlin"))
    sql = "SELECT key FROM orders WHERE timestamp >= '2024-07-01'"
    first = datetime(2024, 6, 30, 22, tzinfo=UTC).timestamp() * 1000
    assert ranges(sql, berlin) == [Ranges(times_ms=Span(int(first)))]
    assert ranges(sql, Constants(None)) == [EVERYTHING]


def test_parameters_count_as_constants() -> None:
    sql = "SELECT key FROM orders WHERE offset >= :p AND partition = :q AND timestamp > :r"
    given = {"p": 5, "q": True, "r": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
    (found,) = ranges(sql, Constants(ZoneInfo("UTC"), given))
    assert found == Ranges(offsets=Span(5), times_ms=Span(1001))


A, B = from_offset(5), from_offset(7)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT 1 FROM o a JOIN o b ON a.k = b.k WHERE a.offset >= 5 AND b.offset >= 7", [A, B]),
        ("SELECT 1 FROM o a JOIN o b ON a.k = b.k WHERE offset >= 5", [EVERYTHING, EVERYTHING]),
        ("SELECT 1 FROM o a JOIN o b ON b.offset >= 7 AND a.offset >= 5", [EVERYTHING, B]),
        ("SELECT 1 FROM o a LEFT JOIN o b ON b.offset >= 7 AND a.offset >= 5", [EVERYTHING, B]),
        ("SELECT 1 FROM o a LEFT JOIN o b ON a.k = b.k WHERE b.offset >= 7", [EVERYTHING, B]),
        ("SELECT 1 FROM o a RIGHT JOIN o b ON b.offset >= 7", [EVERYTHING, EVERYTHING]),
        ("SELECT 1 FROM o a FULL JOIN o b ON b.offset >= 7", [EVERYTHING, EVERYTHING]),
        ("SELECT 1 FROM o a LEFT ANTI JOIN o b ON b.offset >= 7 WHERE a.offset >= 5", [A, B]),
        ("SELECT 1 FROM o a LEFT SEMI JOIN o b ON b.offset >= 7", [EVERYTHING, B]),
        ("SELECT 1 FROM o a, o b WHERE a.offset >= 5 AND b.offset >= 7", [A, B]),
        ("SELECT 1 FROM o a, o a WHERE a.offset >= 5", [EVERYTHING, EVERYTHING]),
        ("SELECT 1 FROM o WHERE offset >= 5 UNION ALL SELECT 1 FROM o WHERE offset >= 7", [A, B]),
        ("SELECT 1 FROM o TABLESAMPLE (5 ROWS) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM o PIVOT (count(1) FOR p IN (0)) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM o AS x(offset, b) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM o LATERAL VIEW explode(h) x AS offset WHERE offset >= 5", [EVERYTHING]),
        ("SELECT count(*) FROM o HAVING max(offset) >= 5", [EVERYTHING]),
        ("SELECT 1 FROM o a WHERE a.offset >= 5 AND EXISTS (SELECT 1 FROM o b WHERE b.offset >= 7)", [A, B]),
        ("SELECT 1 FROM o a WHERE EXISTS (SELECT 1 FROM o b WHERE a.offset >= 5)", [EVERYTHING, EVERYTHING]),
        ("SELECT 1 FROM (SELECT * FROM o) WHERE offset >= 5", [A]),
        ("SELECT 1 FROM (SELECT * FROM o WHERE offset >= 3) x WHERE x.offset >= 5", [A]),
        ("SELECT 1 FROM (SELECT offset AS n, partition AS offset FROM o) WHERE n >= 5", [A]),
        ("SELECT 1 FROM (SELECT n AS offset FROM o) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT offset + 1 AS offset FROM o) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT * EXCEPT (offset), k AS offset FROM o) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT * FROM o LIMIT 3) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT offset, row_number() OVER (ORDER BY k) r FROM o) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT max(offset) AS offset FROM o) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT * FROM o) x(offset, b) WHERE offset >= 5", [EVERYTHING]),
        ("SELECT 1 FROM (SELECT * FROM o UNION ALL SELECT * FROM o) WHERE offset >= 5", [EVERYTHING] * 2),
        ("SELECT 1 FROM (SELECT * FROM o) x LEFT ANTI JOIN (SELECT * FROM o) y ON y.offset >= 7 WHERE x.offset >= 5", [A, B]),
        ("WITH x AS (SELECT * FROM o) SELECT 1 FROM x WHERE offset >= 5", [A]),
        ("WITH x AS (SELECT * FROM o), y AS (SELECT * FROM x) SELECT 1 FROM y WHERE offset >= 5", [A]),
        ("WITH x AS (SELECT * FROM o) SELECT 1 FROM x WHERE offset >= 5 UNION ALL SELECT 1 FROM x", [EVERYTHING]),
        ("WITH x AS (SELECT * FROM o), y AS (SELECT * FROM x LIMIT 1) SELECT 1 FROM y WHERE offset >= 5", [EVERYTHING]),
    ],
)  # fmt: skip
def test_rows_of_each_place(sql: str, wanted: list[Ranges]) -> None:
    assert ranges(sql) == wanted


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (EVERYTHING, {}),
        (Ranges(offsets=Span(5, 9)), {"fromOffset": "5", "toOffset": "9"}),
        (Ranges(offsets=Span(-5, -1)), {"toOffset": "0"}),
        (Ranges(offsets=Span(9, 5)), {"toOffset": "0"}),
        (Ranges(times_ms=Span(-9, 4)), {"toTimestamp": "4"}),
        (Ranges(times_ms=Span(3)), {"fromTimestamp": "3"}),
        (Ranges(partitions=frozenset({2, 0})), {"partitions": "0,2"}),
        (Ranges(partitions=frozenset({-1})), {"toOffset": "0"}),
        (Ranges(partitions=frozenset()), {"toOffset": "0"}),
    ],
)
def test_ranges_as_options_of_the_source(given: Ranges, options: dict[str, str]) -> None:
    assert range_options(given) == options


def test_a_long_way_back_in_small_units_is_not_cut_short() -> None:
    month_ms = 30 * 86_400 * 1000
    (found,) = ranges("SELECT 1 FROM t WHERE timestamp > now() - INTERVAL 2592000 SECONDS")
    assert NOW_MS - month_ms - 3 * 3600 * 1000 < found.times_ms.first <= NOW_MS - month_ms
    (found,) = ranges("SELECT 1 FROM t WHERE timestamp > now() - INTERVAL 99999999999 DAYS")
    assert found == EVERYTHING


@pytest.mark.parametrize(
    "value",
    [
        "CAST('2024-01-01 00:00:00+05:00' AS TIMESTAMP_NTZ)",
        "TIMESTAMP_NTZ '2024-01-01 00:00:00Z'",
        "CAST(3000000000 AS INT)",
    ],
)
def test_what_spark_may_read_otherwise_leaves_nothing_out(value: str) -> None:
    assert ranges(f"SELECT 1 FROM t WHERE timestamp < {value}") == [EVERYTHING]
    assert ranges(f"SELECT 1 FROM t WHERE offset < {value}") == [EVERYTHING]


@pytest.mark.parametrize("number", ["NaN", "sNaN", "Infinity", "1e999999999", "1e-999999999"])
def test_numbers_without_measure_are_left_to_spark(number: str) -> None:
    given = Constants(ZoneInfo("UTC"), {"p": Decimal(number)})
    assert ranges("SELECT 1 FROM t WHERE offset < :p", given) == [EVERYTHING]


@pytest.mark.parametrize("zone", ["+02", "+02:00", "Z", "-00:30"])
def test_zones_as_clients_write_them(zone: str) -> None:
    (found,) = ranges(f"SELECT 1 FROM t WHERE timestamp >= '2024-01-01 12:00:00{zone}'")
    wanted = datetime.fromisoformat(f"2024-01-01T12:00:00{zone}").timestamp() * 1000
    assert found.times_ms == Span(int(wanted))
