"""Masking of credentials in log lines and messages: passwords in URLs, tokens in queries."""

from __future__ import annotations

import re

MASK = "***"
_USER = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*)://(?P<user>[^\s'\"/:@]*:[^\s'\"]*|[^\s'\"/@]*)@"
)
_SECRET = re.compile(
    r"(?P<name>[?&][\w.%-]*(?:secret|token|passw|key|sig|credential)[\w.%-]*=)[^&\s'\"]+",
    re.IGNORECASE,
)
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
"""In `abfss://container@account/` the container's name is not a secret."""


def masked(text: str) -> str:
    """Return the text with every password, key and token in its URLs replaced by `***`."""
    if "://" not in text:
        return text
    return _SECRET.sub(rf"\g<name>{MASK}", _USER.sub(_without_user, text))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    kept = scheme in _CONTAINERS and ":" not in user
    return found[0] if kept else f"{scheme}://{MASK}@"
