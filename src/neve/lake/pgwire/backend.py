"""What the server asks of a query engine.

The engine's calls block; the server makes them in threads. Its SQL is Spark's, with `?` where a
value goes, in the order of `parameters`; a relation without a namespace is also reached as
`public.name`. `execute` gives the schema without running the query, and `batches` is lazy: what a
client's Describe costs is an analysis.
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
    """Something that can be selected from. A name with a dot is namespace and table."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def columns(self) -> Sequence[Column]: ...


class Result(Protocol):
    """Rows to come."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...


class Executor(Protocol):
    """Runs queries, and ends them when told to."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, tag: str) -> Result: ...

    def cancel(self, tag: str) -> object:
        """End whatever runs under this tag; its calls then raise. Unknown tags are ignored."""


class Backend(Executor, Protocol):
    """An engine together with what can be queried in it."""

    def relations(self) -> Sequence[Relation]: ...

    def describe(self, name: str) -> Sequence[Column]: ...
