"""The interface that the server requires of a query engine.

Calls block, so the server makes them in threads. The engine accepts Spark SQL with one `?` for each
value of `parameters`, in order. It also accepts `public.name` for a relation without a namespace.
`execute` returns the schema without running the query, and `batches` is lazy, so a client's
Describe costs only an analysis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa


class Column(Protocol):
    """One column of a relation."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> pa.DataType: ...

    @property
    def nullable(self) -> bool: ...


class Relation(Protocol):
    """A topic, table or view. A name with a dot consists of namespace and table."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def columns(self) -> Sequence[Column]: ...


class Result(Protocol):
    """A result whose rows are computed on demand."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...


class Executor(Protocol):
    """Runs queries and cancels them."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, tag: str) -> Result: ...

    def cancel(self, tag: str) -> object:
        """Cancel the query with this tag; its calls then raise. Unknown tags are ignored."""


class Backend(Executor, Protocol):
    """A query engine and the relations it can query."""

    def relations(self) -> Sequence[Relation]: ...

    def describe(self, name: str) -> Sequence[Column]: ...
