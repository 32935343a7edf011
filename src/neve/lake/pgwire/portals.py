"""Prepared statements and portals of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from neve.lake.pgwire.commands import Command, command_of
from neve.lake.pgwire.dialect import cast_parameters
from neve.lake.pgwire.encode import ColumnEncoder, encoders
from neve.lake.pgwire.execution import Execution
from neve.lake.pgwire.lexer import Statement
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.sqlstate import (
    DUPLICATE_CURSOR,
    DUPLICATE_STATEMENT,
    INVALID_CURSOR_NAME,
    INVALID_STATEMENT_NAME,
    LIMIT_EXCEEDED,
    PROTOCOL_VIOLATION,
    SYNTAX_ERROR,
    SqlError,
)
from neve.lake.pgwire.wire import TEXT, ColumnDescription

TEXT_OID = 25
_VALUE_BYTES = 64
"""Estimated memory of a value in addition to its text."""


@dataclass
class Prepared:
    """A prepared statement. `statement` is None for an empty text."""

    text: str
    statement: Statement | None
    command: Command | None
    types: tuple[int, ...]
    described: Sequence[ColumnDescription] | None = None
    """The row description that the client got before values were bound."""

    @property
    def held_bytes(self) -> int:
        return len(self.text) + _VALUE_BYTES * len(self.types)

    @classmethod
    def of(cls, found: Sequence[Statement], types: Sequence[int] = ()) -> Prepared:
        if len(found) > 1:
            raise SqlError(
                SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement"
            )
        if not found:
            return cls("", None, None, tuple(types))
        return cls.one(found[0], types)

    @classmethod
    def one(cls, statement: Statement, types: Sequence[int] = ()) -> Prepared:
        casts = cast_parameters(statement)
        count = max(statement.parameters, len(types))
        given = [*types, *[0] * (count - len(types))]
        known = [oid or casts.get(at, TEXT_OID) for at, oid in enumerate(given)]
        return cls(statement.text, statement, command_of(statement), tuple(known))


@dataclass
class Portal:
    """A prepared statement with bound values, and the state of its execution."""

    prepared: Prepared
    formats: tuple[int, ...] = ()
    values: Sequence[Any] = ()
    execution: Execution | None = None
    hold: bool = False
    is_finished: bool = False
    is_described: bool = False
    """Whether the client got a row description of this portal, not only of the statement."""
    schema: pa.Schema | None = None
    columns: list[ColumnEncoder] = field(default_factory=list)

    @property
    def held_bytes(self) -> int:
        """Size of text and values, because a portal may outlive its prepared statement."""
        return self.prepared.held_bytes + sum(_size(value) for value in self.values)

    async def open(self) -> pa.Schema:
        """Start the query if it has not started. Returns the schema of its rows."""
        if self.schema is None:
            assert self.execution is not None
            schema = await self.execution.schema()
            self.columns = encoders(schema, self.column_formats(schema))
            self.schema = schema
        return self.schema

    def column_formats(self, schema: pa.Schema) -> list[int]:
        return expand_formats(self.formats, len(schema))

    async def close(self) -> None:
        execution, self.execution = self.execution, None
        self.is_finished = True
        if execution is not None:
            await execution.close()


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) + _VALUE_BYTES
    if isinstance(value, list | tuple):
        return sum(_size(each) for each in value) + _VALUE_BYTES
    return _VALUE_BYTES


def expand_formats(formats: Sequence[int], count: int) -> list[int]:
    """Expand format codes to one per column: no code means text, one code applies to all."""
    if len(formats) <= 1:
        return list(formats or (TEXT,)) * count
    if len(formats) != count:
        raise SqlError(
            PROTOCOL_VIOLATION,
            f"bind message has {len(formats)} result formats but query has {count} columns",
        )
    return list(formats)


@dataclass
class HeldBytes:
    """A counter of the bytes that statements and values occupy."""

    size: int = 0


class SessionPortals:
    """Prepared statements and portals of one session by name, with limits on number and size."""

    def __init__(self, limits: Limits, all_sessions: HeldBytes) -> None:
        self._limits = limits
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._mine, self._all = HeldBytes(), all_sessions

    def _reserve(self, size: int) -> None:
        """Add to the counters. Raises SqlError if a limit would be exceeded."""
        limits = self._limits
        for held, allowed, holder in (
            (self._mine, limits.statement_bytes_max, "this connection"),
            (self._all, limits.statement_bytes_total_max, "all connections together"),
        ):
            if held.size + size > allowed:
                raise SqlError(
                    LIMIT_EXCEEDED,
                    f"prepared statements and cursors of {holder} use {held.size} of {allowed} "
                    f"bytes; this one needs {size} more",
                    hint="Close cursors and deallocate statements that are no longer in use.",
                )
        self._release(-size)

    def _release(self, size: int) -> None:
        self._mine.size -= size
        self._all.size -= size

    def add_prepared(self, name: str, prepared: Prepared) -> None:
        if name and name in self._prepared:
            raise SqlError(DUPLICATE_STATEMENT, f'prepared statement "{name}" already exists')
        self.drop_prepared(name)
        if len(self._prepared) >= self._limits.statements_max:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"this connection has {len(self._prepared)} prepared statements, the maximum",
                hint="Deallocate statements that are no longer in use.",
            )
        self._reserve(prepared.held_bytes)
        self._prepared[name] = prepared

    def prepared(self, name: str) -> Prepared:
        if name not in self._prepared:
            shown = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise SqlError(INVALID_STATEMENT_NAME, f"{shown} does not exist")
        return self._prepared[name]

    def drop_prepared(self, name: str) -> None:
        gone = self._prepared.pop(name, None)
        if gone is not None:
            self._release(gone.held_bytes)

    def drop_all_prepared(self) -> None:
        for name in list(self._prepared):
            self.drop_prepared(name)

    async def add_portal(self, name: str, portal: Portal) -> None:
        if name and name in self._portals:
            raise SqlError(DUPLICATE_CURSOR, f'cursor "{name}" already exists')
        await self.drop_portal(name)
        if len(self._portals) >= self._limits.portals_max:
            raise SqlError(
                LIMIT_EXCEEDED,
                f"this connection has {len(self._portals)} open cursors, the maximum: close some",
            )
        self._reserve(portal.held_bytes)
        self._portals[name] = portal

    def portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise SqlError(INVALID_CURSOR_NAME, f'portal "{name}" does not exist')
        return self._portals[name]

    async def drop_portal(self, name: str) -> None:
        gone = self._portals.pop(name, None)
        if gone is not None:
            self._release(gone.held_bytes)
            await gone.close()

    async def drop_portals(self, *, include_held: bool) -> None:
        """Close all portals; those declared WITH HOLD only if `include_held`."""
        for name in [n for n, each in self._portals.items() if include_held or not each.hold]:
            await self.drop_portal(name)
