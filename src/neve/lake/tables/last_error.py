"""What last kept a pipeline from filling a table, written down at the table itself.

A pipeline runs anywhere, and whoever asks how a table stands need not know where. It is kept as a
property, beside the offsets, and taken away by the next pipeline that succeeds.

Offsets that were removed before a pipeline read them are kept as another property: no success
brings them back, so only the next such loss takes its place. It is set by the commit that passes
them over (`commit(..., properties=loss_property(text))`).
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
    """What went wrong, and when it first did."""

    text: str
    at_ms: int


def last_error_of(table: Table) -> ReportedError | None:
    """The complaint as this object holds the table."""
    return _stored(table, LAST_ERROR)


def loss_of(table: Table) -> ReportedError | None:
    """What was last lost, and when that was found, as this object holds the table."""
    return _stored(table, LAST_LOSS)


def loss_property(text: str) -> dict[str, str]:
    """The table's property that tells of a loss that is found now."""
    return {LAST_LOSS: _content(text)}


def _stored(table: Table, name: str) -> ReportedError | None:
    stored = table.metadata.properties.get(name)
    if stored is None:
        return None
    try:
        content = json.loads(stored)
        return ReportedError(str(content["error"]), int(content["at"]))
    except (KeyError, TypeError, ValueError):
        return ReportedError(stored, 0)  # somebody else's words


def record_error(table: Table, text: str | None) -> None:
    """Write it down, or take it away; nothing is done where it stands there already."""
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
