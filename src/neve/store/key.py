"""Which keys are allowed: the same ones on every store, so that a bucket can move between stores.

A key is relative, its parts are not empty and are neither `.` nor `..`, it holds no control
characters, and it fits both S3 (1,024 bytes in all) and a file system (255 bytes a part).
"""

from __future__ import annotations

import re

from neve.errors import DamagedError, InvalidError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
KEY_BYTES_MAX = 1024
PART_BYTES_MAX = 255


def checked_key(key: str) -> str:
    """The key itself, or InvalidError that says what is wrong with it."""
    reason = _fault(key)
    if reason is not None:
        raise InvalidError(f"{key!r} cannot be a key: {reason}")
    return key


def is_key(text: str) -> bool:
    """Whether an object can have this key."""
    return _fault(text) is None


def checked_size(key: str, size: int, bytes_max: int) -> None:
    """DamagedError for an object of more bytes than its kind can have."""
    if size > bytes_max:
        raise DamagedError(
            key, f"it has {size} bytes, and an object of its kind at most {bytes_max}: not read"
        )


def checked_range(key: str, start: int, end: int) -> None:
    """Refuse a range that no object can have."""
    if start < 0 or end < start:
        raise InvalidError(f"{key}: bytes {start} to {end} are not a range: 0 <= start <= end")


def _fault(key: str) -> str | None:
    if not key:
        return "it is empty"
    if _CONTROL.search(key):
        return "it holds a control character"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if size > KEY_BYTES_MAX:
        return f"it is {size} bytes long, more than {KEY_BYTES_MAX}"
    for part in key.split("/"):
        if part in {"", ".", ".."}:
            return f"the part {part!r} could lead out of its folder"
        if len(part.encode()) > PART_BYTES_MAX:
            return f"a part of it is longer than {PART_BYTES_MAX} bytes"
    return None
