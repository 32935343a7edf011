"""Parses durations and sizes: `10s`, `5m`, `128MiB`."""

from __future__ import annotations

import re

from neve.errors import InvalidError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def seconds_of(text: str, name: str) -> float:
    """Parse a duration above zero. Returns seconds."""
    amount, unit = _parts(text, name, "a duration such as 500ms, 10s, 5m, 2h or 7d")
    if unit not in _SECONDS or amount <= 0:
        raise InvalidError(
            f"{name}: {text!r} is not a duration: write 500ms, 10s, 5m, 2h or 7d, above zero"
        )
    return amount * _SECONDS[unit]


def bytes_of(text: str, name: str) -> int:
    """Parse a size above zero. Returns bytes."""
    amount, unit = _parts(text, name, "a size such as 512KiB, 128MiB or 1GB")
    if unit not in _BYTES or amount <= 0:
        raise InvalidError(f"{name}: {text!r} is not a size: write 512KiB, 128MiB or 1GB")
    return int(amount * _BYTES[unit])


def _parts(text: str, name: str, wanted: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise InvalidError(f"{name}: {text!r} is not {wanted}")
    return float(found.group(1)), found.group(2).lower()
