"""Stores the last error and the last loss of a pipeline in the table.

So `neve lake status` can show them without knowing where the pipeline runs. The error is a property
of the table; the next successful step of a pipeline removes it.

Offsets that were removed before a pipeline read them are another property, which only the next loss
replaces. The commit that skips them sets it (`commit(..., properties=loss_property(text))`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyiceberg.table import Table

from neve import runtime

LAST_ERROR = "neve.last-error"
LAST_LOSS = "neve.last-loss"
TEXT_MAX = 1000


@dataclass(frozen=True)
class ReportedError:
    """An error, and the time when it first occurred."""

    text: str
    at_ms: int


def last_error_of(table: Table) -> ReportedError | None:
    """Return the last error in the table version of this object."""
    return _stored(table, LAST_ERROR)


def loss_of(table: Table) -> ReportedError | None:
    """Return the last loss in the table version of this object."""
    return _stored(table, LAST_LOSS)


def loss_property(text: str) -> dict[str, str]:
    """Return the table's property for a loss that is found now."""
    return {LAST_LOSS: _content(text)}


def _stored(table: Table, name: str) -> ReportedError | None:
    stored = table.metadata.properties.get(name)
    if stored is None:
        return None
    try:
        content = json.loads(stored)
        return ReportedError(str(content["error"]), int(content["at"]))
    except (KeyError, TypeError, ValueError):
        return ReportedError(stored, 0)  # written by another program


def record_error(table: Table, text: str | None) -> None:
    """Store an error, or remove it for None. Commits only if something changes."""
    known = last_error_of(table)
    if text is None:
        if known is not None:
            table.transaction().remove_properties(LAST_ERROR).commit_transaction()
        return
    text = text[:TEXT_MAX]
    if known is None or known.text != text:
        table.transaction().set_properties({LAST_ERROR: _content(text)}).commit_transaction()


def _content(text: str) -> str:
    return json.dumps({"error": text[:TEXT_MAX], "at": runtime.now_ms()})
