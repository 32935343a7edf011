"""Resolves names in a query to topics and tables.

A name with one part is a topic: `orders`, in backquotes if needed. Two or more parts are an Iceberg
table with its namespace. `topics.orders` and `iceberg.sales.orders` are explicit: the first takes
precedence over a table with this name, the second reaches the table. Case matters only if several
names differ in nothing else.
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
class Named:
    """The name of a relation outside SQL: a topic's name, or the parts of a table's."""

    kind: RelationKind
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        return ".".join(self.parts)

    def __str__(self) -> str:
        return sql_name(self)


def sql_name(named: Named) -> str:
    """Return the name as it is written in a query."""
    hidden = named.kind == "table" and named.parts[0].lower() in TOPIC_PREFIXES
    parts = (TABLE_PREFIX, *named.parts) if hidden else named.parts
    return ".".join(quoted_where_needed(part) for part in parts)


def quoted_where_needed(part: str) -> str:
    plain = part.isascii() and part.replace("_", "a").isalnum() and not part[0].isdigit()
    return part if plain else quoted(part)


def quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


class Names:
    """The names of all topics and tables."""

    def __init__(self, topics: Iterable[str], tables: Iterable[tuple[str, ...]]) -> None:
        self.all = [Named("topic", (name,)) for name in topics]
        self.all += [Named("table", parts) for parts in tables]

    def find(self, parts: Sequence[str]) -> Named:
        """Return the relation of a name. Raises UnknownNameError with similar names."""
        for kind, wanted in _readings(tuple(parts)):
            if (found := self._one(kind, wanted)) is not None:
                return found
        raise self._unknown(tuple(parts))

    def _one(self, kind: RelationKind, wanted: tuple[str, ...]) -> Named | None:
        known = [named for named in self.all if named.kind == kind]
        for named in known:
            if named.parts == wanted:
                return named
        lowered = _lower(wanted)
        close = [named for named in known if _lower(named.parts) == lowered]
        if len(close) > 1:
            choices = " or ".join(str(named) for named in close)
            raise QueryError(f"{'.'.join(wanted)} is ambiguous: write {choices}")
        return close[0] if close else None

    def _unknown(self, parts: tuple[str, ...]) -> UnknownNameError:
        name = ".".join(parts)
        for named in self.all:
            if named.name.lower() == name.lower() or _is_path_end(named, parts):
                return UnknownNameError(name, [str(named)])
        ratios = [
            (max(_likeness(name, named.name), _likeness(name, named.parts[-1])), named)
            for named in self.all
        ]
        near = sorted((each for each in ratios if each[0] >= _NEAR_LEAST), key=lambda r: -r[0])
        return UnknownNameError(name, [str(named) for _, named in near[:_NEAR_MAX]])


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


def _is_path_end(named: Named, parts: tuple[str, ...]) -> bool:
    return len(parts) < len(named.parts) and _lower(named.parts)[-len(parts) :] == _lower(parts)


def _lower(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)
