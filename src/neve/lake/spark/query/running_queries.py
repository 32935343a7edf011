"""The running queries, to cancel them by their tags.

A query is registered as long as its result or a reader of its rows is referenced.
"""

from __future__ import annotations

import itertools
import weakref

from neve.lake.sql.errors import QueryCancelledError


class RunningQuery:
    """One query. Only its result and the reader of its rows hold a strong reference to it."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.cancelled = False

    def is_cancelled(self) -> bool:
        return self.cancelled

    def check(self) -> None:
        """Raise QueryCancelledError if the query was cancelled."""
        if self.cancelled:
            raise QueryCancelledError("the query was cancelled")


class RunningQueries:
    """The running queries of one engine. Thread-safe."""

    def __init__(self) -> None:
        self._queries: weakref.WeakValueDictionary[int, RunningQuery] = (
            weakref.WeakValueDictionary()
        )
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._queries.valuerefs())

    def begin(self, tag: str) -> RunningQuery:
        query = RunningQuery(tag)
        self._queries[next(self._numbers)] = query
        return query

    def cancel(self, tag: str) -> bool:
        """Mark the queries with this tag as cancelled. Returns True if there is one."""
        queries = [reference() for reference in self._queries.valuerefs()]
        found = [query for query in queries if query is not None and query.tag == tag]
        for query in found:
            query.cancelled = True
        return bool(found)
