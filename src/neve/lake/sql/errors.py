"""What can be wrong with a query, as kinds that callers tell apart."""

from __future__ import annotations

from neve.errors import InvalidError, NeveError


class QueryError(InvalidError):
    """The query is not understood, or asks for what does not fit together.

    `sqlstate` is the standard's code for it, for clients that go by codes.
    """

    sqlstate = "42000"


class UnknownNameError(QueryError):
    """No topic and no table has this name. `near` lists names like it."""

    sqlstate = "42P01"

    def __init__(self, name: str, near: list[str], note: str = "") -> None:
        hint = f": did you mean {' or '.join(near)}?" if near else ": SHOW TABLES lists all names"
        super().__init__(f"there is no topic or table {name}{note}{hint}")
        self.name = name
        self.near = near


class RefusedError(QueryError):
    """The statement would change something, or run something: only queries are answered."""

    sqlstate = "42501"


class QueryCancelledError(NeveError):
    """Somebody cancelled the query while it ran."""

    sqlstate = "57014"


class QueryFailedError(NeveError):
    """The query was right and could not be carried out: what it reads, or Spark, failed."""

    sqlstate = "58000"


class ResultTooLargeError(QueryFailedError):
    """A row or a partition of the result is larger than the limits allow."""

    sqlstate = "54000"


class OutOfMemoryError(QueryFailedError):
    """Spark ran out of memory with this query; others are not affected."""

    sqlstate = "53200"


class EngineLostError(QueryFailedError):
    """Spark has ended: no query can be answered any more."""

    sqlstate = "57P02"
