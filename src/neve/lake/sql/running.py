"""Which queries are under way, so that they can be cancelled by their tags.

A query is known for as long as somebody could still read its rows: whoever drops its result, read
or not, has forgotten it here as well.
"""

from __future__ import annotations

import itertools
import weakref

from neve.lake.sql.errors import QueryCancelledError


class Ticket:
    """One query. Its result and whoever reads that hold it; nobody else does."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.cancelled = False

    def is_cancelled(self) -> bool:
        return self.cancelled

    def check(self) -> None:
        """Raises if somebody has cancelled the query."""
        if self.cancelled:
            raise QueryCancelledError("the query was cancelled")


class Running:
    """All of an engine. Any thread may call."""

    def __init__(self) -> None:
        self._tickets: weakref.WeakValueDictionary[int, Ticket] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._tickets.valuerefs())

    def begin(self, tag: str) -> Ticket:
        ticket = Ticket(tag)
        self._tickets[next(self._numbers)] = ticket
        return ticket

    def cancel(self, tag: str) -> bool:
        """Mark what runs under a tag; whether there is anything."""
        tickets = [reference() for reference in self._tickets.valuerefs()]
        found = [ticket for ticket in tickets if ticket is not None and ticket.tag == tag]
        for ticket in found:
            ticket.cancelled = True
        return bool(found)
