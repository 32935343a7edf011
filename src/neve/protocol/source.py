"""Python source that is being generated: lines, indentation, unique names.

Both generators combine consecutive fields of fixed width into one `struct` call, with the formats
of this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` code of each type of fixed width."""


class Source:
    """Lines of one function, and the objects that it refers to by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._depth = 0
        self._made = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write `opening`, and indent the lines that are written in the block."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Return a variable name that is unique in the function."""
        self._made += 1
        return f"{stem}_{self._made}"

    def bind(self, name: str, value: Any) -> str:
        """Make an object available to the function as `name`."""
        assert self.names.setdefault(name, value) is value
        return name

    def structure(self, way: str, codes: str) -> str:
        """Return the name of the `pack` or `unpack_from` of a struct with these codes."""
        name = f"{way}_{codes.replace('?', 'bool')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + codes), way)
        return name

    def compiled(self, function: str, label: str) -> Callable[..., Any]:
        text = "\n".join(self.lines)
        exec(compile(text, f"<{label}>", "exec"), self.names)  # noqa: S102 — our own text
        made: Callable[..., Any] = self.names[function]
        return made
