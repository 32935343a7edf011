"""Declaration of one setting."""

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
"""Variables that give defaults of command flags. They are not settings."""


def setting(
    name: str,
    default: T,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Declare one setting as a dataclass field."""
    metadata = {
        "name": name,
        "doc": doc,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
    }
    field: T = dataclasses.field(default=default, metadata=metadata)
    return field


@dataclass(frozen=True)
class SettingDefinition:
    """One declared setting. Docs, help and checks are generated from it."""

    name: str
    group: str
    field: str
    kind: type
    default: Any
    doc: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        """The environment variable of this setting."""
        return VARIABLE_PREFIX + self.name.upper().replace(".", "_")

    @property
    def accepted(self) -> str:
        """The accepted values, to follow "must be" in a message: `an integer >= 1`."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        kind = _KIND_NAMES[self.kind]
        if self.minimum is not None and self.maximum is not None:
            return f"{kind} from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"{kind} >= {self.minimum}"
        return kind if self.maximum is None else f"{kind} <= {self.maximum}"


_KIND_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
