"""Resolves names in a query to topics and tables.

A name with one part is a topic: `orders`, in backquotes if needed. Two or more parts are an Iceberg
table with its namespace. The prefixes `topics` and `iceberg` are explicit: `topics.orders` is the
topic, even if there is a table with this name, which is then `iceberg.topics.orders`. Case matters
only if several names differ only in case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from neve.lake.sql.errors import QueryError, UnknownNameError

RelationKind: TypeAlias = Literal["topic", "table"]
TOPIC_PREFIXES = ("topics", "public")
"""`public` is the schema that PostgreSQL's clients use by default."""
TABLE_PREFIX = "iceberg"
_NEAR_MAX = 3
_NEAR_LEAST = 0.6


@dataclass(frozen=True)
class RelationName:
    """The name of a relation outside SQL: a topic's name, or the parts of a table's."""

    kind: RelationKind
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join(self.parts)

    def __str__(self) -> str:
        return sql_name(self)


def sql_name(relation: RelationName) -> str:
    """Return the name as it is written in a query."""
    hidden = relation.kind == "table" and relation.parts[0].lower() in TOPIC_PREFIXES
    parts = (TABLE_PREFIX, *relation.parts) if hidden else relation.parts
    return ".".join(quoted_where_needed(part) for part in parts)


def quoted_where_needed(part: str) -> str:
    plain = part.isascii() and part.replace("_", "a").isalnum() and not part[0].isdigit()
    return part if plain else quoted(part)


def quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


class Names:
    """The names of all topics and tables."""

    def __init__(self, topics: Iterable[str], tables: Iterable[tuple[str, ...]]) -> None:
        self.all = [RelationName("topic", (name,)) for name in topics]
        self.all += [RelationName("table", parts) for parts in tables]

    def find(self, parts: Sequence[str]) -> RelationName:
        """Return the relation of a name. Raises UnknownNameError with similar names."""
        for kind, wanted in _readings(tuple(parts)):
            if (found := self._one(kind, wanted)) is not None:
                return found
        raise self._unknown(tuple(parts))

    def _one(self, kind: RelationKind, wanted: tuple[str, ...]) -> RelationName | None:
        known = [relation for relation in self.all if relation.kind == kind]
        for relation in known:
            if relation.parts == wanted:
                return relation
        lowered = _lower(wanted)
        close = [relation for relation in known if _lower(relation.parts) == lowered]
        if len(close) > 1:
            choices = " or ".join(str(relation) for relation in close)
            raise QueryError(f"{'.'.join(wanted)} is ambiguous: write {choices}")
        return close[0] if close else None

    def _unknown(self, parts: tuple[str, ...]) -> UnknownNameError:
        name = ".".join(parts)
        for relation in self.all:
            if relation.name.lower() == name.lower() or _is_path_end(relation, parts):
                return UnknownNameError(name, [str(relation)])
        ratios = [
            (max(_likeness(name, relation.name), _likeness(name, relation.parts[-1])), relation)
            for relation in self.all
        ]
        near = sorted((each for each in ratios if each[0] >= _NEAR_LEAST), key=lambda r: -r[0])
        return UnknownNameError(name, [str(relation) for _, relation in near[:_NEAR_MAX]])


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()


def _readings(parts: tuple[str, ...]) -> list[tuple[RelationKind, tuple[str, ...]]]:
    if len(parts) == 1:
        return [("topic", parts)]
    first = parts[0].lower()
    readings: list[tuple[RelationKind, tuple[str, ...]]] = []
    if first in TOPIC_PREFIXES and len(parts) == 2:
        readings.append(("topic", parts[1:]))
    if first == TABLE_PREFIX and len(parts) > 2:
        readings.append(("table", parts[1:]))
    return [*readings, ("table", parts)]


def _is_path_end(relation: RelationName, parts: tuple[str, ...]) -> bool:
    return len(parts) < len(relation.parts) and _lower(relation.parts)[-len(parts) :] == _lower(
        parts
    )


def _lower(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
