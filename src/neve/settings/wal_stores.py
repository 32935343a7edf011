"""The stores named by `wal.store`: their syntax, and which of them a broker writes to. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from neve.errors import InvalidError
from neve.settings.masking import masked

MAIN_STORE = "main"
"""The name of the bucket itself, where streams lie without `wal.store`."""
ONLY_STORE = "wal"
"""The name of a WAL store that is given as a URL alone."""
STORES_MAX = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def parse_wal_stores(text: str) -> dict[str, str]:
    """Return the URLs of `wal.store` by name: of `URL`, or of `NAME=URL,NAME=URL`.

    Raises InvalidError with the reason. The URLs themselves are not checked.
    """
    stores: dict[str, str] = {}
    rows = [row.strip() for row in text.split(",")] if text.strip() else []
    for row in rows:
        name, url = _named(row, alone=len(rows) == 1)
        if name == MAIN_STORE:
            raise InvalidError(
                f"wal.store: {MAIN_STORE!r} is the name of the bucket itself: use another name"
            )
        if name in stores:
            raise InvalidError(f"wal.store names {name!r} twice: each store needs its own name")
        if url in stores.values():
            raise InvalidError(f"wal.store has {masked(url)} twice: name each store once")
        stores[name] = url
    if len(stores) > STORES_MAX:
        raise InvalidError(
            f"wal.store names {len(stores)} stores; at most {STORES_MAX} are allowed"
        )
    return stores


def _named(row: str, *, alone: bool) -> tuple[str, str]:
    name, separator, url = row.partition("=")
    name, url = name.strip(), url.strip()
    if separator and _NAME.fullmatch(name) and url:
        return name, url
    if row and alone and not (separator and _NAME.fullmatch(name)):
        return ONLY_STORE, row
    raise InvalidError(
        f"wal.store: {masked(row)!r} is not NAME=URL: use one URL for all brokers, or NAME=URL for "
        "each store, separated by commas; a name has up to 63 letters, digits, '.', '_' or '-'"
    )


def own_wal_store(stores: Mapping[str, str], chosen: str, rack: str) -> str | None:
    """Return the name of the store that a broker writes to; None for the bucket itself.

    `chosen` is `wal.own.store`, and `rack` is `broker.rack`. Raises InvalidError if neither says.
    """
    if not stores and chosen in ("", MAIN_STORE):
        return None
    names = ", ".join(sorted(stores)) or "none"
    if chosen:
        if chosen != MAIN_STORE and chosen not in stores:
            raise InvalidError(
                f"wal.own.store is {chosen!r}, and wal.store names {names}: use one of these, or "
                f"{MAIN_STORE!r} for the bucket itself"
            )
        return None if chosen == MAIN_STORE else chosen
    if rack in stores:
        return rack
    if len(stores) == 1:
        return next(iter(stores))
    raise InvalidError(
        f"wal.store names {names}, and broker.rack is {rack!r}: set broker.rack, or wal.own.store, "
        "to the name of the store that this broker writes to"
    )
