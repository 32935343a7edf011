"""What can be wrong with a query, as kinds that callers tell apart."""

from __future__ import annotations

from neve.errors import InvalidError, NeveError


class QueryError(InvalidError):
    """The query is not understood, or asks for what does not fit together."""


class UnknownNameError(QueryError):
    """No topic and no table has this name. `near` lists names like it."""

    def __init__(self, name: str, near: list[str], note: str = "") -> None:
        hint = f": did you mean {' or '.join(near)}?" if near else ": SHOW TABLES lists all names"
        super().__init__(f"there is no topic or table {name}{note}{hint}")
        self.name = name
        self.near = near


class ReadOnlyError(QueryError):
    """The statement would change something, or run something: only queries are answered."""


class QueryCancelledError(NeveError):
    """Somebody cancelled the query while it ran."""


class QueryFailedError(NeveError):
    """The query was right and could not be carried out: what it reads, or Spark, failed."""
