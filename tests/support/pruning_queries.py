# ruff: noqa: E501  (a query reads best on one line)
"""Queries whose results must not depend on which rows are pruned, and the comparison.

`PruningCheck` gives the engine a small topic, reduced to exactly the columns and ranges that the
analysis requires: a missing column or row changes a result or makes Spark fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pyarrow as pa

from neve.lake.spark.query.engine import Engine
from neve.lake.sql import analysis
from neve.lake.sql.model import RelationRead
from neve.lake.sql.ranges import HIGHEST, LOWEST
from neve.lake.sql.topics import COLUMNS

BEGIN = datetime(2024, 3, 30, 22, tzinfo=UTC)
ROWS = [
    {
        "key": None if n % 5 == 0 else b"k%d" % (n % 3),
        "value": None if n % 7 == 0 else b'{"n": %d, "s": "v%d"}' % (n, n % 4),
        "topic": "orders",
        "partition": n % 3,
        "offset": n // 3,
        # A record's time is whole milliseconds.
        "timestamp": BEGIN + timedelta(minutes=13 * n, milliseconds=n % 2),
        "timestampType": n % 2,
        "headers": None if n % 2 else [{"key": "h", "value": b"%d" % n}],
    }
    for n in range(36)
]
SCHEMA = pa.schema([pa.field(name, kind) for name, kind in COLUMNS.items()])
TABLE = pa.Table.from_pylist(ROWS, schema=SCHEMA)


@dataclass
class PruningCheck:
    """An engine that can be asked the same twice."""

    engine: Engine

    @classmethod
    @contextlib.contextmanager
    def over(cls, engine: Engine) -> Iterator[PruningCheck]:
        with mock.patch("neve.lake.spark.query.views.topic_frame", _exactly):
            yield cls(engine)

    def compare(self, sql: str) -> None:
        """The answer with everything read, and the one with only what is said to be needed."""
        pruned = self._answer(sql)
        with mock.patch("neve.lake.spark.query.engine.analyse", _nothing_known):
            whole = self._answer(sql)
        assert pruned == whole, sql

    def _answer(self, sql: str) -> list[str]:
        # A second attempt with every column would hide a column that was left out.
        with mock.patch.object(RelationRead, "pruned", False):
            result = self.engine.execute(sql, tag="pruning")
        names = [f"c{at}" for at in range(len(result.schema))]
        found = [
            row for batch in result.batches() for row in batch.rename_columns(names).to_pylist()
        ]
        return sorted(map(repr, found))


def _nothing_known(*given: Any) -> analysis.Analysis:
    found = analysis.analyse(*given)
    references = [
        replace(reference, mentions=None, predicate=None) for reference in found.references
    ]
    return replace(found, references=tuple(references))


def _exactly(spark: Any, _: object, read: RelationRead) -> Any:
    ranges = read.ranges
    rows = [
        row
        for row in ROWS
        if (ranges.partitions is None or row["partition"] in ranges.partitions)
        and _within(row["offset"], ranges.offsets.first, ranges.offsets.end)
        and _within(_milliseconds(row["timestamp"]), ranges.times_ms.first, ranges.times_ms.end)
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA).select(list(read.columns))
    return spark.createDataFrame(table)


def _within(number: Any, first: int, end: int) -> bool:
    return (first == LOWEST or number >= first) and (end == HIGHEST or number < end)


def _milliseconds(moment: Any) -> int:
    # Records carry whole milliseconds; these carry more, so a bound that is cut too close shows.
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


QUERIES = [
    "WITH c AS (SELECT key, offset, partition, timestamp FROM orders WHERE offset < 12) SELECT count(*) FROM c a WHERE NOT (a.timestamp <= '2024-03-31 01:15:00')",
    "SELECT count(*) FROM orders",
    "SELECT count(*), count(key) FROM orders WHERE offset >= 5 AND partition = 1",
    "SELECT key FROM orders WHERE offset > 3 OR key IS NULL",
    "SELECT offset FROM orders WHERE NOT (offset < 5) AND NOT partition = 2",
    "SELECT offset FROM orders WHERE timestamp > '2024-03-31 02:30:00' AND timestamp <= TIMESTAMP '2024-03-31 04:00:00.0005'",
    "SELECT offset FROM orders WHERE timestamp BETWEEN DATE '2024-03-31' AND '2024-03-31T01:00:00Z'",
    "SELECT offset FROM orders WHERE timestamp > now() - INTERVAL 5 DAYS OR offset = 3",
    "SELECT value:n::int n, o.value:s FROM orders o WHERE value:n::int > 5 AND offset < 9.5",
    "SELECT a.key, b.value FROM orders a JOIN orders b ON a.offset = b.offset AND a.partition = b.partition WHERE a.offset >= 5 AND b.offset < 9",
    "SELECT a.offset, b.offset FROM orders a LEFT JOIN orders b ON a.offset = b.offset AND b.partition = 1 AND b.offset > 4 WHERE a.partition = 0",
    "SELECT a.offset, b.offset FROM orders a LEFT JOIN orders b ON a.offset = b.offset + 6 WHERE b.offset > 2",
    "SELECT a.offset, b.offset FROM orders a LEFT JOIN orders b ON a.offset = b.offset + 6 AND a.offset > 8",
    "SELECT a.offset, b.offset FROM orders a RIGHT JOIN orders b ON a.offset = b.offset + 6 AND a.partition = b.partition AND a.offset > 8 AND b.offset > 1",
    "SELECT a.offset, b.offset FROM orders a FULL JOIN orders b ON a.offset = b.offset + 6 AND b.offset > 2 AND a.offset > 2 WHERE a.partition = 1 OR a.partition IS NULL",
    "SELECT a.offset, b.offset FROM orders a FULL JOIN orders b ON a.offset = b.offset + 6 WHERE b.offset > 2",
    "SELECT a.offset FROM orders a LEFT ANTI JOIN orders b ON a.offset = b.offset AND b.partition = 1 AND b.offset > 4 WHERE a.partition = 2",
    "SELECT a.offset FROM orders a LEFT SEMI JOIN orders b ON a.offset = b.offset AND b.offset BETWEEN 4 AND 6",
    "SELECT * FROM orders a NATURAL JOIN (SELECT offset, partition FROM orders WHERE offset < 3) b",
    "SELECT key, count(*) FROM orders JOIN (SELECT offset FROM orders WHERE partition = 1) USING (offset) WHERE key IS NOT NULL GROUP BY ALL",
    "SELECT a.offset FROM orders a WHERE EXISTS (SELECT * FROM orders b WHERE b.offset = a.offset + 1 AND b.partition = 1 AND offset > 5)",
    "SELECT a.offset FROM orders a WHERE EXISTS (SELECT 1 FROM orders b WHERE a.offset > 5 AND b.offset = 2)",
    "SELECT offset FROM orders WHERE offset NOT IN (SELECT offset FROM orders WHERE partition = 0 AND offset > 4)",
    "SELECT offset FROM orders a WHERE offset = (SELECT max(b.offset) FROM orders b WHERE b.partition = a.partition AND b.offset < 7)",
    "SELECT (SELECT count(*) FROM orders WHERE offset > 5) AS n, offset FROM orders WHERE offset < 2",
    "WITH x AS (SELECT * FROM orders WHERE partition = 1) SELECT a.offset, b.offset FROM x a JOIN x b ON a.offset = b.offset + 1 WHERE a.offset > 5",
    "WITH x AS (SELECT * FROM orders) SELECT key FROM x WHERE offset > 8",
    "WITH x AS (SELECT offset AS o, * FROM orders), y AS (SELECT o, key FROM x WHERE partition = 1) SELECT * FROM y WHERE o > 8",
    "WITH x AS (SELECT * FROM orders LIMIT 10000) SELECT count(*) FROM x WHERE offset > 8",
    "WITH orders AS (SELECT * FROM orders WHERE offset < 6) SELECT count(*) FROM orders WHERE offset > 2",
    "SELECT offset, r FROM (SELECT offset, partition, row_number() OVER (PARTITION BY partition ORDER BY offset) AS r FROM orders) WHERE offset > 5",
    "SELECT n FROM (SELECT partition, count(*) AS n, max(offset) AS offset FROM orders GROUP BY partition) WHERE offset > 5",
    "SELECT * FROM (SELECT partition AS offset, offset AS partition FROM orders) WHERE offset = 1 AND partition > 5",
    "SELECT * FROM (SELECT DISTINCT partition, offset FROM orders WHERE offset < 9) WHERE partition = 1",
    "SELECT * FROM (SELECT offset FROM orders UNION ALL SELECT partition FROM orders) WHERE offset > 1",
    "SELECT offset FROM orders WHERE offset > 8 UNION SELECT offset FROM orders WHERE partition = 1 AND offset < 3",
    "SELECT offset FROM orders EXCEPT SELECT offset FROM orders WHERE offset > 3",
    "SELECT offset FROM orders WHERE partition = 0 INTERSECT ALL SELECT offset FROM orders WHERE offset > 6",
    "SELECT h.value FROM orders LATERAL VIEW explode(headers) x AS h WHERE offset > 5",
    "SELECT o.offset, l.m FROM orders o, LATERAL (SELECT max(offset) AS m FROM orders i WHERE i.partition = o.partition AND i.offset < 6) l WHERE o.offset > 9",
    "SELECT * FROM (SELECT partition, offset FROM orders) PIVOT (count(offset) FOR partition IN (0, 1)) ",
    "SELECT partition, max(offset) FILTER (WHERE key IS NULL) FROM orders GROUP BY partition HAVING max(offset) > 3",
    "SELECT o.offset FROM orders AS o(a, b, c, d, offset, f, g, h) WHERE o.offset > 9",
    "SELECT struct(*).offset, hash(*) FROM orders WHERE offset IN (1, 5)",
    "SELECT offset FROM orders WHERE CASE WHEN offset > 5 THEN partition = 1 ELSE true END",
    "SELECT offset FROM orders WHERE (offset > 5) = false",
    "SELECT offset FROM orders WHERE coalesce(offset > 5, true) AND partition <=> 1",
    "WITH x AS (SELECT * FROM orders) SELECT offset FROM x WHERE offset IN (1, 5) OR offset > 9",
    "SELECT offset FROM orders ORDER BY timestamp DESC, partition LIMIT 3",
    "FROM orders |> WHERE offset > 5 |> AGGREGATE count(*) AS n GROUP BY partition",
    "SELECT a.partition, b.n FROM orders a JOIN (SELECT partition, count(*) AS n FROM orders WHERE offset > 5 GROUP BY 1) b ON a.partition = b.partition WHERE a.offset = 1 AND b.partition = 1",
    "SELECT offset FROM orders WHERE timestamp < CAST('2024-03-31 02:00:00+05:00' AS TIMESTAMP_NTZ)",
    "SELECT offset FROM orders WHERE timestamp < CAST('2024-03-31 02:00:00-05:00' AS TIMESTAMP)",
    "WITH orders AS (SELECT * FROM orders WHERE offset < 3) FROM orders |> AGGREGATE count(*) AS n",
    "SELECT * FROM orders |> LIMIT 1000",
    "SELECT offset FROM orders -- the backslash \\\n WHERE offset > 5",
    "SELECT a.offset FROM (SELECT b.offset FROM orders a LEFT JOIN orders b ON a.offset = b.offset + 6) a WHERE a.offset > 2",
    "SELECT o, count(*) FROM (SELECT a.partition p, b.offset o FROM orders a RIGHT JOIN orders b ON a.offset = b.offset AND a.partition = 1) WHERE p = 1 GROUP BY o",
    "SELECT count(*) FROM orders a LEFT JOIN (SELECT offset AS o FROM orders WHERE partition = 1) s ON s.o = a.offset AND s.o > 4 WHERE s.o IS NULL OR s.o < 9",
    "SELECT a.offset FROM orders a LEFT ANTI JOIN (SELECT offset AS o FROM orders) s ON s.o = a.offset AND s.o > 4",
    "WITH RECURSIVE r(n) AS (SELECT 0L UNION ALL SELECT r.n + 1 FROM r JOIN orders o ON o.offset = r.n AND o.partition = 1 AND o.offset < 4) SELECT n FROM r",
    "SELECT offset FROM orders WHERE offset IN (1, NULL) OR offset NOT IN (2, 3, 4)",
    "SELECT offset FROM orders WHERE offset NOT BETWEEN 3 AND 9 AND (offset = '5' OR offset = ' 1 ' OR partition = '2')",
    "SELECT orders.offset FROM (SELECT partition AS offset, offset AS x FROM orders) AS orders WHERE orders.offset > 1 AND orders.x < 4",
    "SELECT x.o FROM (SELECT offset AS o, explode(array(1, 2)) AS e FROM orders) x WHERE x.o > 5",
    "SELECT count(*), max(m) FROM (SELECT max(offset) OVER () AS m, offset FROM orders WHERE partition = 1) WHERE offset < 5",
    "SELECT a.o FROM (SELECT offset AS o FROM orders ORDER BY offset LIMIT 5) a WHERE a.o > 0",
    "SELECT a.offset, b.o FROM orders a LEFT JOIN LATERAL (SELECT i.offset AS o FROM orders i WHERE i.offset = a.offset + 1 AND i.partition = 1) b ON b.o > 5 WHERE a.partition = 0",
    "SELECT s.x.offset FROM (SELECT struct(*) AS x, partition FROM orders) s WHERE s.x.offset > 5 AND s.partition = 1",
    "WITH a AS (SELECT * FROM orders), b AS (SELECT * FROM a WHERE offset > 5), c AS (SELECT * FROM a WHERE offset < 2) SELECT offset FROM b UNION ALL SELECT offset FROM c",
    "SELECT offset FROM orders WHERE offset > (SELECT min(offset) + 3 FROM orders WHERE partition = 2) AND offset < 9 AND partition IN (0, 1)",
    "SELECT count(*) FROM orders a JOIN orders b ON a.offset > 5 AND b.offset > 7 LEFT JOIN orders c ON c.offset = a.offset AND c.partition = 1 WHERE c.offset > 3",
]


# --- made up


def _conditions(alias: str) -> st.SearchStrategy[str]:
    column = f"{alias}." if alias else ""
    number = st.integers(-2, 13)
    operator = st.sampled_from(["=", "<", "<=", ">", ">=", "<=>", "<>"])
    moment = st.builds(
        lambda minutes, form: form.format(BEGIN + timedelta(minutes=minutes)),
        st.integers(-30, 520),
        st.sampled_from(
            [
                "'{:%Y-%m-%d %H:%M:%S}'",
                "TIMESTAMP '{:%Y-%m-%d %H:%M:%S}.0005'",
                "DATE '{:%Y-%m-%d}'",
                "'{:%Y-%m-%dT%H:%M:%S}Z'",
            ]
        ),
    )
    leaf = st.one_of(
        st.builds(lambda o, n: f"{column}offset {o} {n}", operator, number),
        st.builds(lambda o, n: f"{n} {o} {column}offset", operator, number),
        st.builds(lambda n, m: f"{column}offset BETWEEN {n} AND {m}", number, number),
        st.builds(lambda n, m: f"{column}offset IN ({n}, {m}, 4.5)", number, number),
        st.builds(lambda n: f"{column}partition = {n}", st.integers(-1, 3)),
        st.builds(lambda n, m: f"{column}partition IN ({n}, {m})", number, number),
        st.builds(lambda o, m: f"{column}timestamp {o} {m}", operator, moment),
        st.sampled_from([f"{column}key IS NULL", f"{column}key = 'k1'", "true"]),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
            st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
            st.builds(lambda a: f"NOT ({a})", inner),
        ),
        max_leaves=5,
    )


def generated_queries() -> st.SearchStrategy[str]:
    """Conditions in every place where a condition can be."""
    bare, a, b = _conditions(""), _conditions("a"), _conditions("b")
    kinds = st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    halves = st.sampled_from(["LEFT SEMI JOIN", "LEFT ANTI JOIN"])
    return st.one_of(
        st.builds(lambda w: f"SELECT offset, partition FROM orders WHERE {w}", bare),
        st.builds(lambda w, x: f"SELECT offset FROM (SELECT * FROM orders WHERE {w}) WHERE {x}", bare, bare),
        st.builds(lambda w, x: f"WITH c AS (SELECT key, offset, partition, timestamp FROM orders WHERE {w}) SELECT count(*) FROM c a WHERE {x}", bare, a),
        st.builds(
            lambda k, o, p, w: f"SELECT a.offset, a.partition, b.offset FROM orders a {k} orders b ON a.offset = b.offset AND {o} AND {p} WHERE {w}",
            kinds, a, b, st.one_of(a, b, st.builds(lambda x, y: f"{x} AND {y}", a, b)),
        ),
        st.builds(
            lambda k, o, w: f"SELECT a.offset, a.partition FROM orders a {k} orders b ON a.offset = b.offset AND {o} WHERE {w}",
            halves, b, a,
        ),
        st.builds(
            lambda o, w: f"SELECT a.offset FROM orders a WHERE {w} AND EXISTS (SELECT 1 FROM orders b WHERE b.offset = a.offset AND {o})",
            b, a,
        ),
        st.builds(lambda w, x: f"SELECT offset FROM orders WHERE {w} UNION ALL SELECT partition FROM orders WHERE {x}", bare, bare),
    )  # fmt: skip
