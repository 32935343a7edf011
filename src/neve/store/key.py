"""Validation of keys: the same rules for every store, so that a bucket can move between stores.

A key is relative. No part is empty, `.` or `..`, and no character is a control character. A key
fits both S3 (1,024 bytes in total) and a file system (255 bytes per part).
"""

from __future__ import annotations

import re

from neve.errors import DamagedError, InvalidError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
KEY_BYTES_MAX = 1024
PART_BYTES_MAX = 255


def checked_key(key: str) -> str:
    """Return the key. Raises InvalidError, with the reason, if it is invalid."""
    reason = _fault(key)
    if reason is not None:
        raise InvalidError(f"{key!r} is not a valid key: {reason}")
    return key


def is_key(text: str) -> bool:
    """Return whether the text is a valid key."""
    return _fault(text) is None


def checked_size(key: str, size: int, bytes_max: int) -> None:
    """Raise DamagedError if an object is larger than its kind allows."""
    if size > bytes_max:
        raise DamagedError(
            key, f"it has {size} bytes; the maximum for its kind is {bytes_max}: not read"
        )


def checked_range(key: str, start: int, end: int) -> None:
    """Raise InvalidError unless 0 <= start <= end."""
    if start < 0 or end < start:
        raise InvalidError(f"{key}: invalid range {start} to {end}: must be 0 <= start <= end")


def _fault(key: str) -> str | None:
    if not key:
        return "it is empty"
    if _CONTROL.search(key):
        return "it contains a control character"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > KEY_BYTES_MAX:
        return f"it has {size} bytes; the maximum is {KEY_BYTES_MAX}"
    for part in key.split("/"):
        if part in {"", ".", ".."}:
            return f"the part {part!r} is not allowed"
        if len(part.encode()) > PART_BYTES_MAX:
            return f"a part has more than {PART_BYTES_MAX} bytes"
    return None
