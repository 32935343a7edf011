"""The errors of queries."""

from __future__ import annotations

from neve.errors import InvalidError, NeveError


class QueryError(InvalidError):
    """The query cannot be parsed or is not valid. `sqlstate` is the standard's code for it."""

    sqlstate = "42000"


class UnknownNameError(QueryError):
    """The name is not that of a topic or table. `near` lists similar names."""

    sqlstate = "42P01"

    def __init__(self, name: str, near: list[str], note: str = "") -> None:
        hint = f": did you mean {' or '.join(near)}?" if near else ": SHOW TABLES lists all names"
        super().__init__(f"topic or table {name} does not exist{note}{hint}")
        self.name = name
        self.near = near


class RefusedError(QueryError):
    """The statement is not allowed: only queries are."""

    sqlstate = "42501"


class QueryCancelledError(NeveError):
    """The query was cancelled while it ran."""

    sqlstate = "57014"


class QueryFailedError(NeveError):
    """The query is valid, but a read or Spark failed."""

    sqlstate = "58000"


class ResultTooLargeError(QueryFailedError):
    """A row or a partition of the result is larger than the limits allow."""

    sqlstate = "54000"


class OutOfMemoryError(QueryFailedError):
    """Spark ran out of memory with this query; others are not affected."""

    sqlstate = "53200"


class EngineLostError(QueryFailedError):
    """Spark has stopped: the engine cannot run queries any more."""

    sqlstate = "57P02"
