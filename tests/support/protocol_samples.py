"""Random messages of every API and version, generated from the message descriptions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from neve.protocol.codes import ErrorCode
from neve.protocol.compiler import AnyApi
from neve.protocol.messages import APIS
from neve.protocol.schema import Field, Struct


@dataclass(frozen=True, repr=False)
class Message:
    """One message in one version, as tests name it."""

    api: AnyApi
    kind: str
    version: int

    def __repr__(self) -> str:
        return f"{self.api.name}{self.kind}-v{self.version}"

    @property
    def schema(self) -> Struct:
        return self.api.schema.request if self.kind == "Request" else self.api.schema.response

    @property
    def cls(self) -> Any:
        return getattr(self.api, self.kind)

    @property
    def flexible(self) -> bool:
        return self.version >= self.api.flexible_from

    def encode(self, value: Any) -> bytes:
        return b"".join(self.cls.encode(value, self.version))

    def decode(self, data: bytes) -> Any:
        return self.cls.decode(memoryview(data), self.version)


def every_message() -> list[Message]:
    return [
        Message(api, kind, version)
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
        for kind in ("Request", "Response")
    ]


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    least = -(1 << bits - 1) if signed else 0
    return st.integers(least, least + (1 << bits) - 1)


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": integers(8),
    "int16": integers(16),
    "uint16": integers(16, signed=False),
    "int32": integers(32),
    "uint32": integers(32, signed=False),
    "int64": integers(64),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8) | st.integers(100, 300).map(lambda size: "é" * size),
    "bytes": st.binary(max_size=8) | st.integers(120, 140).map(bytes),
    "records": st.binary(max_size=8) | st.sampled_from([126, 127, 128, 16_383, 16_384]).map(bytes),
    "uuid": st.binary(min_size=16, max_size=16),
}

AGREED: dict[str, st.SearchStrategy[Any]] = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "log_append_time_ms": st.integers(0, 1 << 31).map(lambda seconds: seconds * 1000),
    "retention_time_ms": st.integers(0, 1 << 31),
}
"""Fields that kio takes for something narrower than the bytes allow: codes, times, durations."""


def element(field: Field, version: int, cls: Any, narrow: bool) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        return instances(field.struct, version, getattr(cls, field.struct.name), cls, narrow)
    if narrow and field.name in AGREED:
        return AGREED[field.name]
    return PRIMITIVES[field.type]


def values(field: Field, version: int, cls: Any, narrow: bool) -> st.SearchStrategy[Any]:
    made = element(field, version, cls, narrow)
    if field.array:
        made = st.lists(made, max_size=2)
    return st.none() | made if version in field.nullable else made


def instances(
    struct: Struct, version: int, made: Any, cls: Any, narrow: bool
) -> st.SearchStrategy[Any]:
    present = [each for each in struct.fields if version in each.versions]
    chosen = {each.name: values(each, version, cls, narrow) for each in present}
    return st.builds(made, **chosen)


@cache
def messages(message: Message, narrow: bool = False) -> st.SearchStrategy[Any]:
    """Any instance of a message; `narrow` leaves out what kio cannot hold."""
    return instances(message.schema, message.version, message.cls, message.cls, narrow)
