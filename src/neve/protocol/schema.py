"""The parsed form of a description: an API, its two messages, their structs and fields.

Plain immutable data. The compiler makes classes and codecs from it. Tests compare it with other
descriptions of Kafka's protocol.
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
"""The size of each type of fixed width, in bytes."""

SIZED_TYPES = ("string", "bytes", "records")
"""Types that have a length before their bytes."""

ZERO_UUID = bytes(16)

Default = bool | int | float | str | bytes | None
"""A default value; None is null. The default of a list or struct is empty or null."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

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
        """Yield the untagged fields of a version, in the order of the wire."""
        return (each for each in self.fields if version in each.versions and each.tag is None)

    def tagged_in(self, version: int) -> list[Field]:
        """Return the tagged fields of a version, sorted by tag."""
        tagged = [each for each in self.fields if version in each.versions and each.tag is not None]
        return sorted(tagged, key=lambda each: each.tag or 0)

    @property
    def shared_name(self) -> str:
        """The name of the shared default instance in generated code."""
        return f"DEFAULT_{self.name}"

    def walk(self) -> Iterator[Struct]:
        """Yield this struct and all structs in it, outermost first."""
        yield self
        for each in self.fields:
            if each.struct is not None:
                yield from each.struct.walk()


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `type` is the name of a primitive type, or empty if `struct` is set."""

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
        """Whether the field has the same size in every message."""
        return not self.array and self.type in FIXED_WIDTHS

    @property
    def shared_default(self) -> bool:
        """Whether messages without the field share one default instance of its struct.

        True for tagged structs of primitive fields, which most messages omit. Their classes are
        frozen, so that the shared instance cannot change.
        """
        return (
            self.tag is not None
            and not self.array
            and not self.null_by_default
            and self.struct is not None
            and all(not each.array and each.struct is None for each in self.struct.fields)
        )

    def least_bytes(self, version: int, flexible: bool) -> int:
        """Return the smallest size of the field, in bytes."""
        if self.array or self.type in SIZED_TYPES:
            legacy = 2 if self.type == "string" and not self.array else 4
            return 1 if flexible else legacy
        return self.least_element_bytes(version, flexible)

    def least_element_bytes(self, version: int, flexible: bool) -> int:
        """Return the smallest size of one value, or of one element of an array."""
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
