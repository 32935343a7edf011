"""The catalogue: what tools ask, and that asking can do no harm."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from neve.errors import UnavailableError
from neve.lake.pgwire import Limits
from neve.lake.pgwire.catalog.catalog import Catalog, SessionCatalog
from neve.lake.pgwire.lexer import statements
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import SqlError
from neve.lake.pgwire.types import column_descriptions
from unit.lake.pgwire.fake_engine import CLICKS, ORDERS, FakeEngine, Relation


def catalog_of(engine: FakeEngine | None = None, **limits: Any) -> SessionCatalog:
    state = Catalog(
        engine or FakeEngine(), Limits(**limits), database="neve", users=["anna", "bert"]
    )
    return SessionCatalog(state, SessionSettings("anna"), user="anna", process=42)


@pytest.fixture(scope="module")
def catalog() -> SessionCatalog:
    return catalog_of()


def answers(catalog: SessionCatalog, sql: str) -> bool:
    (one,) = statements(sql)
    return catalog.handles(one)


def ask(catalog: SessionCatalog, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    result = catalog.execute(sql, parameters, tag="t")
    return [tuple(row.values()) for row in result.table.to_pylist()]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace",
        "select table_name from information_schema.tables",
        "WITH x AS (SELECT oid FROM pg_type) SELECT * FROM x",
        "SELECT current_user, session_user, user",
        "select version()",
        "select pg_catalog.version()",
        "SELECT current_schema()",
        "SELECT pg_backend_pid()",
        "SELECT set_config('a.b', 'c', false)",
        "SELECT 'orders'::regclass::oid",
        "SELECT word FROM pg_get_keywords()",
    ],
)
def test_questions_about_the_database_are_the_catalogue_s(
    catalog: SessionCatalog, sql: str
) -> None:
    assert answers(catalog, sql)
    assert ask(catalog, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT * FROM orders",
        "SELECT * FROM pg_orders",
        "SELECT count(*) FROM orders WHERE topic = 'pg_class'",
        "SELECT current_date",
        "SELECT current_timestamp()",
        "SELECT user FROM orders",
        "SELECT max(version) FROM orders",
        "EXPLAIN SELECT * FROM pg_things",
        "SELECT * FROM tables",
    ],
)
def test_queries_are_the_engine_s(catalog: SessionCatalog, sql: str) -> None:
    assert not answers(catalog, sql)


def test_relations_have_schemas_and_columns(catalog: SessionCatalog) -> None:
    listed = ask(
        catalog,
        "SELECT table_schema, table_name, table_type FROM information_schema.tables "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
    )
    assert listed == [
        ("lake", "clicks", "BASE TABLE"),
        ("public", "orders", "BASE TABLE"),
        ("public", "orders.v1", "BASE TABLE"),
    ]
    columns = ask(
        catalog,
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull "
        "FROM pg_catalog.pg_attribute a WHERE a.attrelid = 'lake.clicks'::regclass "
        "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    )
    assert columns == [
        ("id", "bigint", True),
        ("price", "numeric(10,2)", False),
        ("tags", "text[]", False),
        ("_kafka", "jsonb", False),
    ]
    numbers = "SELECT numeric_precision, numeric_scale FROM information_schema.columns "
    assert ask(catalog, numbers + "WHERE column_name = 'price'") == [(10, 2)]


def test_names_and_numbers_lead_to_each_other(catalog: SessionCatalog) -> None:
    ((oid,),) = ask(catalog, "SELECT 'public.orders'::regclass::oid")
    assert ask(catalog, f"SELECT c.oid::regclass FROM pg_class c WHERE c.oid = '{oid}'") == [
        ("orders",)
    ]
    assert ask(
        catalog, "SELECT c.oid::regclass::text FROM pg_class c WHERE relname = $1", "clicks"
    ) == [("lake.clicks",)]
    assert ask(catalog, "SELECT to_regclass('nope')") == [(None,)]
    with pytest.raises(SqlError, match="42P01"):
        ask(catalog, "SELECT 'nope'::regclass")


def test_only_what_needs_no_schema_is_visible(catalog: SessionCatalog) -> None:
    seen = ask(
        catalog,
        "SELECT relname FROM pg_class WHERE pg_catalog.pg_table_is_visible(oid) AND oid >= 16384",
    )
    assert sorted(seen) == [("orders",), ("orders.v1",)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("relname OPERATOR(pg_catalog.~) '^(ord.*)$' COLLATE pg_catalog.default", True),
        ("relname ~ 'ORD'", False),
        ("relname ~* 'ORD'", True),
        ("relname !~ '^pg_'", True),
        ("relname LIKE 'ORD%'", False),
        ("relname ILIKE 'ORD%'", True),
        ("relname LIKE 'or\\_ers'", False),
        ("relname LIKE 'or_ers'", True),
        ("relkind = ANY (ARRAY['r', 'v'])", True),
        ("relkind = ANY ('{v,m}'::\"char\"[])", False),
        ("relkind <> ALL ('{v,m}')", True),
        ("relnamespace = ANY (SELECT oid FROM pg_namespace WHERE nspname = 'public')", True),
        ("relnamespace = 'public'::regnamespace", True),
        ("relhasindex IS FALSE", True),
        ("has_table_privilege(oid, 'SELECT')", True),
    ],
)
def test_conditions_mean_what_they_mean_in_postgresql(
    catalog: SessionCatalog, condition: str, expected: bool
) -> None:
    asked = f"SELECT {condition} FROM pg_catalog.pg_class WHERE relname = 'orders'"
    assert ask(catalog, asked) == [(expected,)]


def test_answers_have_names_and_types(catalog: SessionCatalog) -> None:
    result = catalog.execute(
        "SELECT oid, RelName, relhasindex, relnatts + 1, count(*) OVER () AS n, 'x', "
        "ARRAY(SELECT nspname FROM pg_namespace ORDER BY 1) AS all_of_them, version(), "
        "CASE WHEN relhasindex THEN 'a' END FROM pg_class c",
        tag="t",
    )
    shown = [(column.name, column.type_oid) for column in column_descriptions(result.schema)]
    assert shown == [
        ("oid", 26),
        ("relname", 19),
        ("relhasindex", 16),
        ("?column?", 23),
        ("n", 20),
        ("?column?", 25),
        ("all_of_them", 1003),
        ("version", 25),
        ("case", 25),
    ]
    assert result.table["all_of_them"][0].as_py()[:2] == ["information_schema", "lake"]


def test_the_session_is_its_own(catalog: SessionCatalog) -> None:
    asked = "SELECT current_user, current_database(), pg_backend_pid(), current_schema()"
    assert ask(catalog, asked) == [("anna", "neve", 42, "public")]
    assert ask(catalog, "SELECT current_setting('search_path')") == [('"$user", public',)]
    roles = ask(catalog, "SELECT rolname FROM pg_roles WHERE rolcanlogin ORDER BY 1")
    assert roles == [("anna",), ("bert",)]


def test_the_catalogue_is_not_joined_with_data(catalog: SessionCatalog) -> None:
    asked = "SELECT * FROM pg_class c JOIN orders o ON o.topic = c.relname"
    assert answers(catalog, asked)
    with pytest.raises(SqlError, match="not part of the catalogue"):
        ask(catalog, asked)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nonsense(1) FROM pg_class",
        "SELECT no_such_column FROM pg_class",
        "SELECT load_extension('x') FROM pg_class",
        "SELECT * FROM pg_class ORDER BY relname ~ '('",
        "SELECT * FROM pg_class WHERE ((",
    ],
)
def test_what_cannot_be_answered_is_refused(catalog: SessionCatalog, sql: str) -> None:
    with pytest.raises(SqlError):
        ask(catalog, sql)


def test_nothing_but_reading_is_possible(catalog: SessionCatalog, tmp_path: Any) -> None:
    copied = catalog._catalog.snapshot().copy(lambda: False, {})
    other = tmp_path / "other"
    for statement in (
        f"ATTACH '{other}' AS x",
        f"VACUUM INTO '{other}'",
        "CREATE TABLE t (a)",
        'DELETE FROM "pg_catalog.pg_class"',
        "PRAGMA case_sensitive_like = OFF",
    ):
        with pytest.raises(Exception, match=r"not authorized|prohibited|denied|too many"):
            copied.execute(statement)
    copied.close()
    assert not other.exists()


def test_a_question_without_end_can_be_ended() -> None:
    catalog = catalog_of()
    endless = (
        "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) "
        "SELECT max(n) FROM x, pg_class"
    )
    stopper = threading.Timer(0.5, catalog.cancel, ["t"])
    stopper.start()
    with pytest.raises(SqlError, match="interrupted"):
        ask(catalog, endless)
    stopper.join()


def test_large_answers_are_refused() -> None:
    with pytest.raises(SqlError, match="more than 10 rows"):
        ask(catalog_of(catalog_rows_max=10), "SELECT * FROM pg_attribute")


def test_new_relations_are_seen_and_numbers_stay() -> None:
    engine = FakeEngine()
    catalog = catalog_of(engine, catalog_seconds=0.0)
    asked = "SELECT relname, oid FROM pg_class WHERE oid >= 16384 ORDER BY oid"
    before = dict(ask(catalog, asked))
    engine.relation_list = [Relation("new", "topic", ORDERS.columns), CLICKS]
    after = dict(ask(catalog, asked))
    assert set(after) == {"new", "clicks"}
    assert after["clicks"] == before["clicks"]
    assert after["new"] not in before.values()


def test_the_engine_is_not_asked_for_every_question() -> None:
    engine = FakeEngine()
    catalog = catalog_of(engine)
    for _ in range(3):
        ask(catalog, "SELECT relname FROM pg_class")
    assert engine.listed == 1


def test_relations_without_columns_are_described() -> None:
    class Terse(FakeEngine):
        def relations(self) -> list[Relation]:
            return [Relation(each.name, each.kind, ()) for each in self.relation_list]

        def describe(self, name: str) -> list[Any]:
            return list(next(r for r in self.relation_list if r.name == name).columns)

    asked = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'orders'"
    assert ask(catalog_of(Terse()), asked) == [(6,)]


def test_a_relation_that_cannot_be_looked_at_does_not_hide_the_others() -> None:
    class Broken(FakeEngine):
        def relations(self) -> list[Relation]:
            return [ORDERS, Relation("lake.broken", "table", ())]

        def describe(self, name: str) -> list[Any]:
            raise UnavailableError(name, "the table cannot be opened")

    found = ask(catalog_of(Broken()), "SELECT table_name FROM information_schema.tables")
    assert {("orders",), ("broken",)} <= set(found)


def test_answers_of_long_texts_are_refused_before_they_are_held() -> None:
    sql = "SELECT hex(zeroblob(100000)) FROM pg_attribute a, pg_attribute b"
    with pytest.raises(SqlError, match="more than 1000000 bytes"):
        ask(catalog_of(catalog_bytes_max=1_000_000), sql)


@pytest.mark.parametrize(
    "sql", ["SELECT current_price FROM orders |> LIMIT 1", "SELECT pg_x FROM a JOIN b |> LIMIT ALL"]
)
def test_what_only_the_engine_understands_is_left_to_it(catalog: SessionCatalog, sql: str) -> None:
    assert not answers(catalog, sql)
