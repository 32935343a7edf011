"""How a setting is declared, and what a declaration says."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
VARIABLE_PREFIX = "NEVE_"
COMMAND_VARIABLES = frozenset({"NEVE_BOOTSTRAP"})
"""Defaults of commands' flags. They are no settings, and may be set whatever else is started."""


def setting(  # one call a setting reads like the table in docs/operators/settings.md
    name: str,
    default: T,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Declare one setting as a dataclass field."""
    metadata = {"name": name, "doc": doc, "least": least, "most": most, "choices": choices}
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


@dataclass(frozen=True)
class Declared:
    """One setting as declared: what docs, help and checks are made from."""

    name: str
    group: str
    field: str
    kind: type
    default: Any
    doc: str
    least: float | None
    most: float | None
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        """The environment variable that gives it."""
        return VARIABLE_PREFIX + self.name.upper().replace(".", "_")
