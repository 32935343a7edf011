"""Which topic or table a name means, and what is said where it means none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from neve.errors import UnavailableError
from neve.lake.sql.errors import QueryError, UnknownNameError
from neve.lake.sql.names import Names, RelationName, sql_name
from neve.lake.sql.relation_catalog import RelationCatalog

TOPICS = ["orders", "odd-name.x", "sales.orders", "Case", "case2"]
TABLES = [("sales", "orders"), ("topics", "orders"), ("a", "b", "c"), ("iceberg", "t")]
NAMES = Names(TOPICS, TABLES)


@pytest.mark.parametrize(
    ("parts", "kind", "name"),
    [
        (["orders"], "topic", "orders"),
        (["odd-name.x"], "topic", "odd-name.x"),
        (["sales.orders"], "topic", "sales.orders"),
        (["sales", "orders"], "table", "sales.orders"),
        (["topics", "orders"], "topic", "orders"),
        (["iceberg", "topics", "orders"], "table", "topics.orders"),
        (["iceberg", "t"], "table", "iceberg.t"),
        (["public", "orders"], "topic", "orders"),
        (["a", "b", "c"], "table", "a.b.c"),
        (["ORDERS"], "topic", "orders"),
        (["Sales", "Orders"], "table", "sales.orders"),
        (["case"], "topic", "Case"),
    ],
)
def test_what_a_name_means(parts: list[str], kind: str, name: str) -> None:
    found = NAMES.find(parts)
    assert (found.kind, found.name) == (kind, name)


@pytest.mark.parametrize(
    ("parts", "near"),
    [
        (["ordrs"], "orders"),
        (["odd-name", "x"], "`odd-name.x`"),
        (["b", "c"], "a.b.c"),
        (["sale", "orders"], "sales.orders"),
    ],
)
def test_names_like_it_are_suggested(parts: list[str], near: str) -> None:
    with pytest.raises(UnknownNameError) as raised:
        NAMES.find(parts)
    assert near in raised.value.near
    assert near in str(raised.value)


def test_nothing_like_it_is_said_too() -> None:
    with pytest.raises(UnknownNameError, match="SHOW TABLES"):
        NAMES.find(["zzzzzz"])


def test_names_that_differ_in_case_alone_are_told_apart() -> None:
    names = Names(["Orders", "ORDERS"], [])
    assert names.find(["ORDERS"]).name == "ORDERS"
    with pytest.raises(QueryError, match="is ambiguous: write Orders or ORDERS"):
        names.find(["orders"])


def test_names_are_quoted_where_they_must_be() -> None:
    assert sql_name(RelationName("topic", ("a-b",))) == "`a-b`"
    assert sql_name(RelationName("topic", ("a`b",))) == "`a``b`"
    assert sql_name(RelationName("table", ("ns", "1st"))) == "ns.`1st`"
    assert sql_name(RelationName("table", ("topics", "x"))) == "iceberg.topics.x"


class _Topics:
    def topics(self) -> list[Any]:
        return [SimpleNamespace(name="orders")]


class _Deaf:
    name = "deaf"

    def list_namespaces(self, *_: object) -> list[Any]:
        raise OSError("connection refused")


def test_topics_are_found_while_the_tables_catalog_does_not_answer() -> None:
    catalogue = RelationCatalog(cast(Any, _Topics()), cast(Any, _Deaf()))
    wanted = [("orders",), ("public", "orders"), ("topics", "ORDERS")]
    assert {named.parts for named in catalogue.find(wanted).values()} == {("orders",)}
    assert len(catalogue.find(wanted)) == 3
    assert catalogue.find([("gone",)]) == {}
    with pytest.raises(UnavailableError):
        catalogue.find([("orders",), ("sales", "orders")])
