"""All relations of an engine: topics of a bucket and tables of a catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neve.bucket.sync_bucket import Bucket
from neve.errors import NeveError
from neve.lake.sql.errors import QueryError, RefusedError, UnknownNameError
from neve.lake.sql.model import Column, Relation
from neve.lake.sql.names import Names, RelationName
from neve.lake.sql.statements import tokens_of
from neve.lake.sql.tables import load_table, table_columns, table_names
from neve.lake.sql.topics import COLUMNS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

INTERNAL = "__"
"""The prefix of Kafka's internal topics: they can be read, but are not listed."""
TOPIC_COLUMNS = tuple(Column(name, kind) for name, kind in COLUMNS.items())


class RelationCatalog:
    """Finds topics and tables. Nothing is cached, because they may be created or deleted."""

    def __init__(self, bucket: Bucket, catalog: Catalog | None) -> None:
        self._bucket = bucket
        self._catalog = catalog

    def names(self) -> Names:
        return Names(self._topics(), table_names(self._catalog))

    def find(self, wanted: Sequence[Sequence[str]]) -> dict[tuple[str, ...], RelationName]:
        """Return the relations of the names that exist.

        Lists the catalog's tables only if a name with several parts is not that of a topic.
        """
        found = _found(Names(self._topics(), []), wanted)
        rest = [parts for parts in wanted if tuple(parts) not in found]
        if any(len(parts) > 1 for parts in rest):
            found |= _found(self.names(), rest)
        return found

    def missing(self, parts: Sequence[str]) -> QueryError:
        """Return the error for a name that does not exist, or that is a file."""
        if "/" in parts[-1] or "\\" in parts[-1]:
            return RefusedError(f"{'.'.join(parts)}: files are not read by path, only by a table")
        try:
            relation = self.names().find(parts)
        except UnknownNameError as error:
            return error
        return UnknownNameError(".".join(parts), [str(relation)])

    def relations(self) -> list[Relation]:
        """Return all relations, topics first."""
        found = []
        for relation in self.names().all:
            if not relation.name.startswith(INTERNAL):
                found.append(Relation(relation.name, relation.kind, self._known_columns(relation)))
        return found

    def _known_columns(self, relation: RelationName) -> tuple[Column, ...]:
        try:
            return self.columns(relation)
        except NeveError:
            return ()  # list the relation without columns if its table cannot be opened

    def by_text(self, text: str) -> RelationName:
        """Find a relation by its plain name, or by its name in a query."""
        names = self.names()
        for relation in names.all:
            if relation.name == text:
                return relation
        return names.find([token.text for token in tokens_of(text) if token.text != "."])

    def columns(self, relation: RelationName) -> tuple[Column, ...]:
        if relation.kind == "topic":
            return TOPIC_COLUMNS
        return table_columns(self.table(relation))

    def table(self, relation: RelationName) -> Table:
        return load_table(self._catalog, relation.parts)

    def _topics(self) -> list[str]:
        return [topic.name for topic in self._bucket.topics()]


def _found(names: Names, wanted: Sequence[Sequence[str]]) -> dict[tuple[str, ...], RelationName]:
    found = {}
    for parts in wanted:
        with contextlib.suppress(UnknownNameError):
            found[tuple(parts)] = names.find(parts)
    return found
