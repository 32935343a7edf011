"""Loading of settings from a file, the environment and flags."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neve.errors import InvalidError
from neve.settings.declare import COMMAND_VARIABLES, VARIABLE_PREFIX, SettingDefinition
from neve.settings.masking import masked
from neve.settings.memory import shares
from neve.settings.tree import GROUPS, Settings, declared


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Return the settings of all sources; flags override the environment, and that the file.

    Raises InvalidError, with the source and the setting, for an unknown name or an invalid value.
    """
    known = declared()
    values: dict[str, Any] = {}
    for source, given in (
        (str(file), _from_file(file) if file is not None else {}),
        ("environment", _from_environment(environment or {}, known)),
        ("flags", dict(flags or {})),
    ):
        for name, value in given.items():
            if name not in known:
                raise InvalidError(f"{source}: unknown setting {name!r}{_nearest(name, known)}")
            values[name] = _checked(known[name], value, source)
    given_names = frozenset(values)
    values |= shares(values)
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for name, value in values.items():
        groups[known[name].group][known[name].field] = value
    tree = {group: GROUPS[group](**given) for group, given in groups.items()}
    return Settings(**tree, given=given_names)


def _from_file(file: Path) -> dict[str, object]:
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidError(f"{file}: cannot read the file: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{file}: invalid TOML: {error}") from error
    rows = _flattened("", tree)
    given = dict(rows)
    if len(given) < len(rows):  # a quoted "wal.linger.ms" and a nested one
        twice = next(name for name in given if sum(name == other for other, _ in rows) > 1)
        raise InvalidError(f"{file}: {twice} is set twice: remove one")
    return given


def _flattened(prefix: str, tree: dict[str, object]) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in tree.items():
        name = f"{prefix}{key}"
        rows += _flattened(f"{name}.", value) if isinstance(value, dict) else [(name, value)]
    return rows


def _from_environment(
    environment: Mapping[str, str], known: Mapping[str, SettingDefinition]
) -> dict[str, object]:
    names = {about.variable: name for name, about in known.items()}
    # Keep an unknown variable under its own name: `load` rejects it as a misspelling.
    return {
        names.get(variable, variable): value
        for variable, value in environment.items()
        if variable.startswith(VARIABLE_PREFIX) and variable not in COMMAND_VARIABLES
    }


def _nearest(name: str, known: Mapping[str, SettingDefinition]) -> str:
    """Return a hint in the caller's spelling: a variable for a variable, a name for a name."""
    is_variable = name.startswith(VARIABLE_PREFIX)
    spelled = [about.variable if is_variable else about.name for about in known.values()]
    close = difflib.get_close_matches(name, spelled, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _checked(about: SettingDefinition, value: object, source: str) -> object:
    parsed = _parsed(about.kind, value)
    if parsed is None or not _in_bounds(about, parsed):
        message = f"{source}: {about.name} must be {about.accepted}, not {value!r}"
        raise InvalidError(masked(message))
    return parsed


def _in_bounds(about: SettingDefinition, value: object) -> bool:
    if about.choices:
        return value in about.choices
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return (about.minimum is None or value >= about.minimum) and (
        about.maximum is None or value <= about.maximum
    )


_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _parsed(kind: type, value: object) -> object | None:
    """Return the value as the setting's type, or None if it does not fit. Only text is parsed."""
    if isinstance(value, str) and kind is not str:
        return _parsed_text(kind, value.strip())
    if isinstance(value, bool) and kind is not bool:
        return None
    if kind is float and isinstance(value, int | float):
        # NaN passes every bound, and no setting may be infinite.
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, kind) else None


def _parsed_text(kind: type, text: str) -> object | None:
    if kind is bool:
        return _TRUTH.get(text.lower())
    try:
        return _parsed(kind, kind(text))
    except ValueError:
        return None
