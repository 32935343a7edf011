"""Finds strays of a numbered series, and numbers that are missing from it."""

from __future__ import annotations

from collections.abc import Sequence

from neve.bucket.verify.context import Stray
from neve.bucket.verify.findings import Finding, PartitionRef, Remedy, Severity
from neve.log.keys import SeriesKeys
from neve.store.port import ObjectInfo


def below_checkpoint(
    keys: SeriesKeys,
    rows: Sequence[ObjectInfo],
    greatest: int,
    remedy: Remedy,
    *,
    place: PartitionRef | None = None,
    incarnation: int | None = None,
) -> list[Stray]:
    """Return the numbers and checkpoints below the greatest checkpoint, which contains them."""
    return [
        Stray(
            row,
            Finding(
                severity=Severity.LEFTOVER,
                key=row.key,
                what=f"it is below checkpoint {greatest}, which contains it",
                do="harmless; --repair removes it",
                remedy=remedy,
                place=place,
                incarnation=incarnation,
            ),
        )
        for row in rows
        if (number := number_or_checkpoint(keys, row.key)) is not None and number < greatest
    ]


def number_or_checkpoint(keys: SeriesKeys, key: str) -> int | None:
    number = keys.number_of(key)
    return keys.checkpoint_of(key) if number is None else number


def missing_number(
    keys: SeriesKeys, rows: Sequence[ObjectInfo], position: int, place: PartitionRef | None = None
) -> list[Finding]:
    """Return a finding if the number at `position` is missing although later ones exist.

    The caller must have listed `rows` before it read the series up to `position`. As a writer reads
    a number before it writes the next one, a listed later number proves a gap.
    """
    numbers = [number for row in rows if (number := keys.number_of(row.key)) is not None]
    beyond = [number for number in numbers if number > position]
    if not beyond:
        return []
    return [
        Finding(
            severity=Severity.GAP,
            key=keys.number(position),
            what=f"it is missing, and {len(beyond)} later ones are there, up to {max(beyond)}: "
            "readers stop here",
            do="bring it back from a copy or an older version of the bucket; nothing may be "
            "written to this series before",
            place=place,
        )
    ]


def unknown_key(row: ObjectInfo, where: str, place: PartitionRef | None = None) -> Stray:
    """Return the stray for a key that Neve never writes. Repair does not remove such objects."""
    return Stray(
        row,
        Finding(
            severity=Severity.ORPHAN,
            key=row.key,
            what=f"no object of Neve has such a key under {where}",
            do="inspect it, then move or remove it by hand",
            place=place,
        ),
    )
