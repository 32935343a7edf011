"""SQL on Spark over a real broker's bucket and real Iceberg tables, delete files included."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyiceberg.catalog.sql import SqlCatalog

from neve.errors import NeveError
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.query import arrow_stream
from neve.lake.spark.query.engine import Engine
from neve.lake.sql.errors import (
    QueryCancelledError,
    QueryError,
    QueryFailedError,
    RefusedError,
    UnknownNameError,
)
from support.iceberg_deletes import delete_equal, delete_positions
from support.lake_session import SPARK_TESTS, lake_session
from support.pruning_queries import QUERIES, PruningCheck, generated_queries
from support.spark_topics import BEGIN_MS, Sent, Topics

pytestmark = [*SPARK_TESTS, pytest.mark.soak]

COUNT = 300
"""Records in each of two partitions, enough for several segments."""


def order(number: int) -> bytes:
    customer = {"id": number % 7, "full name": f"c{number % 7}"}
    rest = {"amount": number * 1.5, "items": [{"sku": f"s{number}"}], "note": "x" * 100}
    return json.dumps({"customer": customer, **rest}).encode()


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    made = Topics.start(tmp_path_factory.mktemp("topics"))
    try:
        made.create("orders", 2)
        made.create("odd-name.x", 1)
        for first in range(0, COUNT, 50):
            for partition in (0, 1):
                rows = [
                    Sent(b"k%d" % (n % 5), order(n), (("h", b"v"),), BEGIN_MS + n * 1000)
                    for n in range(first, first + 50)
                ]
                made.produce("orders", partition, rows)
        made.produce(
            "odd-name.x", 0, [Sent(None, b"\xff\x00", (), BEGIN_MS), Sent(b"k", None, (), 0)]
        )
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    folder = tmp_path_factory.mktemp("tables")
    made = SqlCatalog("neve", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    made.create_namespace("sales")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = made.create_table("sales.customers", schema)
    for first in (0, 4):
        ids = list(range(first, first + 4))
        table.append(pa.table([ids, [f"customer {n}" for n in ids]], schema=schema))
    (newest,) = [t.file.file_path for t in table.scan("id >= 4").plan_files()]
    delete_positions(table, {newest: [3]})
    delete_equal(table, pa.table({"id": pa.array([1], pa.int64())}), ["id"])
    made.create_table("sales.orders", schema)
    yield made
    made.close()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lake_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def engine(spark: Any, topics: Topics, catalog: SqlCatalog) -> Iterator[Engine]:
    with Engine(spark, StoreRef(topics.store), catalog) as made:
        yield made


def rows(engine: Engine, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    result = engine.execute(sql, parameters, tag="test")
    batches = list(result.batches())
    assert all(batch.schema == result.schema for batch in batches)
    return [tuple(row.values()) for batch in batches for row in _unique(batch).to_pylist()]


def _unique(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([f"c{at}" for at in range(batch.num_columns)])


# --- topics


def test_a_topic_is_a_table(engine: Engine, topics: Topics) -> None:
    found = engine.execute("SELECT * FROM orders", tag="all")
    assert found.schema.names == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    table = pa.Table.from_batches(found.batches(), found.schema).to_pylist()
    assert {(row["partition"], row["offset"]): row["value"] for row in table} == {
        place: sent.value for place, sent in topics.of("orders").items()
    }
    assert table[0]["headers"] == [{"key": "h", "value": b"v"}]


def test_fields_of_json_values(engine: Engine) -> None:
    sql = (
        "SELECT value:customer.id, o.value:customer['full name'], value:items[0].sku, value:gone,"
        " value:amount::double FROM orders o WHERE partition = 1 AND offset = 9"
    )
    assert rows(engine, sql) == [("2", "c2", "s9", None, 13.5)]
    named = engine.execute("SELECT value:customer.id, max(value:a) FROM orders GROUP BY 1", tag="n")
    assert named.schema.names == ["value:customer.id", "max(value:a)"]


def test_names_that_need_quotes_and_bytes_that_are_no_text(engine: Engine) -> None:
    found = rows(engine, "SELECT key, value, value:x FROM `odd-name.x` ORDER BY offset")
    assert found == [(None, b"\xff\x00", None), (b"k", None, None)]


def test_parameters(engine: Engine) -> None:
    sql = "SELECT count(*), max(offset) FROM orders WHERE offset < ? AND partition = ? AND key = ?"
    assert rows(engine, sql, 20, 0, b"k3") == [(4, 18)]
    sql = "SELECT max(offset) FROM orders WHERE timestamp < $1 AND 'a' = $2 AND timestamp < $1"
    assert rows(engine, sql, "2023-11-14T22:13:25Z", "a") == [(4,)]


def test_a_join_of_topic_and_table(engine: Engine) -> None:
    sql = """
        SELECT c.name, count(*) AS n, sum(o.value:amount::double) AS total
        FROM orders o JOIN sales.customers c ON o.value:customer.id::bigint = c.id
        WHERE o.offset < 70 AND c.id <> 0 GROUP BY ALL ORDER BY name
    """
    total = {n: sum(i * 1.5 for i in range(70) if i % 7 == n) * 2 for n in range(7)}
    assert rows(engine, sql) == [(f"customer {n}", 20, total[n]) for n in (2, 3, 4, 5, 6)]


# --- tables


def test_deleted_rows_of_tables_are_gone(engine: Engine) -> None:
    assert rows(engine, "SELECT id FROM sales.customers ORDER BY id") == [
        (0,), (2,), (3,), (4,), (5,), (6,),
    ]  # fmt: skip
    assert rows(engine, "SELECT name FROM sales.customers WHERE id IN (1, 2, 7)") == [
        ("customer 2",)
    ]
    assert rows(engine, "SELECT count(*) FROM sales.customers") == [(6,)]
    assert rows(engine, "SELECT sales.customers.id FROM sales.customers WHERE id = 3") == [(3,)]


def test_a_table_without_rows(engine: Engine) -> None:
    assert rows(engine, "SELECT * FROM sales.orders") == []


# --- what there is


def test_relations_and_their_columns(engine: Engine) -> None:
    found = {relation.name: relation for relation in engine.relations()}
    assert list(found) == ["odd-name.x", "orders", "sales.customers", "sales.orders"]
    assert found["orders"].kind == "topic"
    described = [(c.name, c.type) for c in engine.describe("sales.customers")]
    assert described == [("id", pa.int64()), ("name", pa.string())]
    assert engine.describe("odd-name.x") == engine.describe("`odd-name.x`")
    assert ("`odd-name.x`", "topic") in rows(engine, "SHOW TABLES")
    assert rows(engine, "DESCRIBE TABLE sales.customers;") == [
        ("id", "bigint", True), ("name", "string", True),
    ]  # fmt: skip


def test_explain_tells_what_is_read(engine: Engine) -> None:
    whole = engine.explain("SELECT * FROM orders").relations[0]
    assert whole.planned >= 4
    assert whole.pruned == 0
    late = engine.explain(
        "SELECT o.key FROM orders o JOIN sales.customers c ON o.offset = c.id "
        "WHERE o.partition = 0 AND o.offset >= 250 AND c.id >= 5"
    )
    topic, table = late.relations
    assert topic.columns == ("key", "partition", "offset")
    assert topic.selection == "partition in (0) and offset >= 250"
    assert 0 <= topic.planned < whole.planned
    assert topic.planned + topic.pruned == whole.planned
    assert 0 < topic.bytes_planned < whole.bytes_planned
    assert (table.planned, table.pruned, table.selection) == (1, 1, "id >= 5")
    assert any("delete files: 2" in note for note in table.notes)
    text = "\n".join(text for (text,) in rows(engine, "EXPLAIN SELECT key FROM orders"))
    assert f"{whole.planned} planned, 0 pruned" in text
    assert "Physical Plan" in text


# --- mistakes


@pytest.mark.parametrize(
    ("sql", "kind", "told"),
    [
        ("SELECT * FROM ordres", UnknownNameError, "did you mean orders"),
        ("SELECT * FROM customers", UnknownNameError, "sales.customers"),
        ("SELECT * FROM csv.`/etc/passwd`", RefusedError, "files are not read by path"),
        ("SELECT nothing FROM orders", QueryError, "`timestamp`|`key`|`offset`"),
        ("SELECT key FROM orders WHERE", QueryError, "yntax"),
        ("FROM ordres |> SELECT *", UnknownNameError, "did you mean orders"),
        ("SELECT * FROM IDENTIFIER('parquet.`/etc`')", RefusedError, "by path"),
        ("SELECT IDENTIFIER('ke' || 'y') FROM orders", RefusedError, "not allowed"),
        ("DROP TABLE orders", RefusedError, "DROP"),
        ("SELECT TRANSFORM(key) USING r'cat' FROM orders", RefusedError, "ScriptTransformation"),
        ("SELECT assert_true(offset < 5) FROM orders", QueryFailedError, "USER_RAISED|is not true"),
    ],
)
def test_mistakes_are_told(engine: Engine, sql: str, kind: type[NeveError], told: str) -> None:
    with pytest.raises(kind, match=told) as raised:
        rows(engine, sql)
    assert "neve_" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_topic_that_cannot_be_read_is_named(engine: Engine, topics: Topics) -> None:
    (segment, *_) = sorted(topics.folder.glob("topics/orders.*/*0/segment-*.kfs"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + b"\x00" * 50 + whole[250:])
    try:
        with pytest.raises(QueryFailedError, match="is damaged"):
            rows(engine, "SELECT count(value) FROM orders")
        assert rows(engine, "SELECT count(*) FROM orders WHERE partition = 1") == [(COUNT,)]
    finally:
        segment.write_bytes(whole)


# --- results


def test_results_come_in_order_and_in_portions(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "WINDOW_BYTES", 1_000_000)
    sizes: list[int] = []
    real = arrow_stream.ArrowStream._job

    def counted(self: Any, data: Any, partitions: list[int]) -> list[pa.RecordBatch]:
        sizes.append(len(partitions))
        return real(self, data, partitions)

    monkeypatch.setattr(arrow_stream.ArrowStream, "_job", counted)
    sql = "SELECT id, repeat('x', 100) AS x FROM range(0, 100000, 1, 20)"
    found = engine.execute(sql, tag="many").batches()
    numbers = [n for batch in found for n in batch.column(0).to_pylist()]
    assert numbers == list(range(100_000))
    assert sum(sizes) == 20
    assert max(sizes) <= 2
    sizes.clear()
    assert len(rows(engine, "SELECT id FROM range(0, 100000, 1, 20) LIMIT 7")) == 7
    assert sum(sizes) <= 2
    assert rows(engine, "SELECT id FROM range(0, 10, 1, 5) LIMIT 3 OFFSET 4") == [(4,), (5,), (6,)]


def test_types_that_arrow_has_not_are_text(engine: Engine) -> None:
    sql = "SELECT parse_json('{\"a\": [1]}') AS v, INTERVAL '1' YEAR AS y, 1 AS n, 2 AS n"
    found = engine.execute(sql, tag="types")
    assert found.schema.names == ["v", "y", "n", "n"]
    assert rows(engine, sql) == [('{"a":[1]}', "INTERVAL '1' YEAR", 1, 2)]


def test_a_cancelled_query_ends(engine: Engine) -> None:
    def cancel() -> None:
        tracker = engine._spark.sparkContext.statusTracker()
        deadline = time.monotonic() + 60
        while not tracker.getActiveStageIds() and time.monotonic() < deadline:
            time.sleep(0.05)
        engine.cancel("another")
        engine.cancel("endless")

    canceller = threading.Thread(target=cancel)
    result = engine.execute(
        "SELECT sum(a.id * b.id) FROM range(9e9) a, range(9e9) b", tag="endless"
    )
    canceller.start()
    with pytest.raises(QueryCancelledError):
        list(result.batches())
    canceller.join()
    assert rows(engine, "SELECT 1") == [(1,)]


def test_a_query_is_forgotten_with_its_result(engine: Engine) -> None:
    gc.collect()  # errors of other tests hold what they came from
    assert len(engine._running) == 0
    unread = engine.execute("SELECT key FROM orders", tag="unread")
    engine.execute("SHOW TABLES", tag="answered")
    assert len(engine._running) == 1
    engine.cancel("unread")
    with pytest.raises(QueryCancelledError):
        next(unread.batches())
    begun = engine.execute("SELECT id FROM range(0, 50000, 1, 5)", tag="unread").batches()
    del unread
    next(begun)
    assert len(engine._running) == 1
    begun.close()  # type: ignore[attr-defined]
    del begun
    with pytest.raises(QueryError):
        engine.execute("SELECT nothing FROM orders", tag="wrong")
    gc.collect()
    assert len(engine._running) == 0


# --- nothing is left out that counts


@pytest.fixture
def pruning(engine: Engine) -> Iterator[PruningCheck]:
    """The engine on a small topic that holds exactly what the analysis asks for, and no more."""
    with PruningCheck.over(engine) as check:
        yield check


@pytest.mark.parametrize("sql", QUERIES)
def test_pruned_and_whole_answers_are_the_same(pruning: PruningCheck, sql: str) -> None:
    pruning.compare(sql)


AS_THEY_COME = {
    "deadline": None,
    "database": None,
    "phases": [Phase.generate],  # a smaller query that fails takes minutes to find
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=10, derandomize=True, **AS_THEY_COME)
@given(sql=generated_queries())
def test_generated_queries_have_the_same_answers(pruning: PruningCheck, sql: str) -> None:
    pruning.compare(sql)


@pytest.mark.soak
@settings(max_examples=600, **AS_THEY_COME)
@given(sql=generated_queries())
def test_many_generated_queries_have_the_same_answers(pruning: PruningCheck, sql: str) -> None:
    pruning.compare(sql)


# --- the command


@pytest.fixture
def command(
    spark: Any, topics: Topics, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> Any:
    import contextlib

    from neve.cli import sql as cli
    from neve.cli import sql_session

    @contextlib.contextmanager
    def same(*_: object) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(sql_session, "quiet_spark", same)
    flags = {"uri": catalog.properties["uri"], "warehouse": catalog.properties["warehouse"]}
    given = [f"{name}={value}" for name, value in flags.items()]

    def run(query: str | None, **more: Any) -> int:
        return cli.sql(query, store=topics.store, catalog=given, **more)

    return run


def test_output_as_json_csv_and_table(command: Any, capfdbinary: Any) -> None:
    sql = "SELECT partition, key, headers FROM orders WHERE offset = 3 ORDER BY 1"
    assert command(sql, json=True) == 0
    lines = capfdbinary.readouterr().out.splitlines()
    assert json.loads(lines[1]) == {
        "partition": 1, "key": "k3", "headers": [{"key": "h", "value": "v"}],
    }  # fmt: skip
    assert command("SELECT id, name FROM sales.customers WHERE id < 3 ORDER BY id", csv=True) == 0
    assert capfdbinary.readouterr().out == b"id,name\n0,customer 0\n2,customer 2\n"
    assert command("SELECT id, name FROM sales.customers WHERE id = 2") == 0
    shown = capfdbinary.readouterr().out.decode()
    assert "customer 2" in shown
    assert "(1 row, " in shown
