"""Hides credentials in whatever is logged or shown: URLs with passwords, tokens in queries."""

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
"""`abfss://container@account/`: a container's name is no secret."""


def masked(text: str) -> str:
    """The text, with every password, key and token of the URLs in it replaced by `***`."""
    if "://" not in text:
        return text
    return _SECRET.sub(rf"\g<name>{MASK}", _USER.sub(_without_user, text))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found["scheme"], found["user"]
    kept = scheme in _CONTAINERS and ":" not in user
    return found[0] if kept else f"{scheme}://{MASK}@"
