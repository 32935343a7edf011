"""Python source as it is generated: lines, indentation, names that are used once.

Both generators put the fields of fixed width that follow one another into one `struct` call;
what they share about that is here.
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
"""The struct code of every type of fixed width."""


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
        """What is written within stands indented below `opening`."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A variable's name that nothing else in the function has."""
        self._made += 1
        return f"{stem}_{self._made}"

    def bind(self, name: str, value: Any) -> str:
        """Makes an object known to the function under `name`."""
        assert self.names.setdefault(name, value) is value
        return name

    def structure(self, way: str, codes: str) -> str:
        """The name of a struct's bound `pack` or `unpack_from`."""
        name = f"{way}_{codes.replace('?', 'bool')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + codes), way)
        return name

    def compiled(self, function: str, label: str) -> Callable[..., Any]:
        text = "\n".join(self.lines)
        exec(compile(text, f"<{label}>", "exec"), self.names)  # noqa: S102 — our own text
        made: Callable[..., Any] = self.names[function]
        return made
