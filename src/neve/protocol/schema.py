"""The tree that the notation is parsed into: an API, its two messages, structs and fields.

Plain immutable data. The compiler makes classes and codecs from it; tests compare it with
other descriptions of the same protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

NEVER = 1 << 15
"""A version that no API reaches: versions are int16 on the wire."""

FIXED_WIDTHS = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
"""Bytes of each type that is equally long in every message."""

SIZED_TYPES = ("string", "bytes", "records")
"""Types that carry their length."""

ZERO_UUID = bytes(16)

Default = bool | int | float | str | bytes | None
"""A default as written; None is null. Lists and structs have only the empty one, or null."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends in it."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def within(self, outer: Versions) -> Versions:
        return Versions(max(self.first, outer.first), min(self.last, outer.last))

    @property
    def empty(self) -> bool:
        return self.first > self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NO_VERSIONS = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Struct:
    name: str
    fields: tuple[Field, ...]

    def fields_in(self, version: int) -> Iterator[Field]:
        """The untagged fields of a version, in the order of the wire."""
        return (each for each in self.fields if version in each.versions and each.tag is None)

    def tagged_in(self, version: int) -> list[Field]:
        """The tagged fields of a version, by tag."""
        tagged = [each for each in self.fields if version in each.versions and each.tag is not None]
        return sorted(tagged, key=lambda each: each.tag or 0)

    @property
    def shared_name(self) -> str:
        """What generated code calls the one instance of defaults that all share."""
        return f"DEFAULT_{self.name}"

    def walk(self) -> Iterator[Struct]:
        """This struct and all below it, outermost first."""
        yield self
        for each in self.fields:
            if each.struct is not None:
                yield from each.struct.walk()


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `type` is a primitive's name, or empty where `struct` is set."""

    name: str
    type: str
    struct: Struct | None
    array: bool
    versions: Versions
    nullable: Versions = NO_VERSIONS
    tag: int | None = None
    default: Default = None

    @property
    def null_by_default(self) -> bool:
        return self.default is None and not self.nullable.empty

    @property
    def fixed(self) -> bool:
        """Whether it is equally long in every message."""
        return not self.array and self.type in FIXED_WIDTHS

    @property
    def shared_default(self) -> bool:
        """Whether messages that leave the field out share one instance of its struct.

        So it is for tagged structs of plain values, which are nearly always left out. Their
        classes are frozen: what is shared cannot be changed.
        """
        return (
            self.tag is not None
            and not self.array
            and not self.null_by_default
            and self.struct is not None
            and all(not each.array and each.struct is None for each in self.struct.fields)
        )

    def least_bytes(self, version: int, flexible: bool) -> int:
        """The fewest bytes that the field can take, its own or as one element of its list."""
        if self.array or self.type in SIZED_TYPES:
            legacy = 2 if self.type == "string" and not self.array else 4
            return 1 if flexible else legacy
        return self.least_element_bytes(version, flexible)

    def least_element_bytes(self, version: int, flexible: bool) -> int:
        """The fewest bytes of one value, of an element where the field is an array."""
        if self.struct is not None:
            if version in self.nullable and not self.array:
                return 1
            inside = (
                each.least_bytes(version, flexible) for each in self.struct.fields_in(version)
            )
            return sum(inside) + flexible
        if self.type in SIZED_TYPES:
            return 1 if flexible else (2 if self.type == "string" else 4)
        return FIXED_WIDTHS[self.type]


@dataclass(frozen=True, slots=True)
class ApiSchema:
    """One API as described: its key, its versions and its two messages."""

    name: str
    key: int
    versions: Versions
    flexible_from: int
    request: Struct
    response: Struct
