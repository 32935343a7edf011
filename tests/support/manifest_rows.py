"""Rows of a manifest."""

from __future__ import annotations

from collections.abc import Iterable

from neve.log.manifest.records import Change, ManifestRecord, Run, Segment
from neve.log.manifest.state import ManifestRules, ManifestState


def segment(base: int, last: int | None = None, *, name: str = "", owned: bool = True) -> Segment:
    """A segment of ten offsets by default; its keys tell which one it is."""
    last = base + 9 if last is None else last
    key = name or f"s{base:04d}"
    return Segment(
        key=key,
        base=base,
        last=last,
        bytes=100,
        records=last - base + 1,
        min_timestamp=base,
        max_timestamp=last,
        created_ms=0,
        epoch=0,
        crc=0,
        index_key=f"{key}.index",
        index_bytes=10,
        owned=owned,
    )


def run_of(key: str, segments: Iterable[Segment]) -> Run:
    rows = list(segments)
    return Run(
        key=key,
        base=rows[0].base,
        last=rows[-1].last,
        segments=len(rows),
        bytes=sum(row.bytes for row in rows),
        min_timestamp=min(row.min_timestamp for row in rows),
        max_timestamp=max(row.max_timestamp for row in rows),
    )


def folded(*changes: Change, base: ManifestState | None = None, number: int = 0) -> ManifestState:
    """The state after numbers that hold one change each."""
    state = ManifestState() if base is None else base
    for at, change in enumerate(changes, number):
        state = ManifestRules().fold(state, at, ManifestRecord((change,)))
    return state
