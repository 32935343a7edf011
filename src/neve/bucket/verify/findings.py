"""The findings of a verify run, and the report that contains them.

A finding has a severity, the object's key, what was seen and what to do. Damage, gaps and broken
rules mean that something is wrong. Garbage (orphans and leftovers), which every crash leaves
behind, only takes up space. Skipped offsets, whose loss is on record, and notes are information.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from neve.log.manifest.skips import OffsetRange

# Limits the report of a bucket that lost half of its objects: more findings would add nothing.
FINDINGS_MAX = 10_000


class Severity(enum.StrEnum):
    """How bad a finding is: an error, garbage, or information."""

    DAMAGE = "damage"
    GAP = "gap"
    RULE = "rule"
    ORPHAN = "orphan"
    LEFTOVER = "leftover"
    SKIPPED = "skipped"
    NOTE = "note"

    @property
    def is_wrong(self) -> bool:
        return self in (Severity.DAMAGE, Severity.GAP, Severity.RULE)

    @property
    def is_garbage(self) -> bool:
        return self in (Severity.ORPHAN, Severity.LEFTOVER)


class Remedy(enum.StrEnum):
    """The action by which repair resolves a finding."""

    RESTORE_INDEX = "restore-index"
    DOOM = "doom"
    TRIM_CLUSTER_LOG = "trim-cluster-log"
    TRIM_MANIFEST = "trim-manifest"
    TRIM_STREAM = "trim-stream"
    RETIRE_STREAM = "retire-stream"
    REMOVE_TEMPORARY = "remove-temporary"
    REMOVE_PROBE = "remove-probe"
    REMOVE_HEARTBEAT = "remove-heartbeat"


class PartitionRef(NamedTuple):
    """A partition of a live topic."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One observation.

    `lost` are the offsets of partition `place` that no reader can get. `bytes` is the object's
    size, set for garbage only.
    """

    severity: Severity
    key: str
    what: str
    do: str = ""
    remedy: Remedy | None = None
    place: PartitionRef | None = None
    incarnation: int | None = None
    lost: tuple[OffsetRange, ...] = ()
    repaired: bool = False
    bytes: int = 0

    @property
    def repairable(self) -> bool:
        return self.remedy is not None

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "severity": self.severity.value,
            "key": self.key,
            "what": self.what,
            "do": self.do,
            "repairable": self.repairable,
            "repaired": self.repaired,
        }
        if self.place is not None:
            row["topic"], row["partition"] = self.place.topic, self.place.partition
        if self.severity.is_garbage:
            row["bytes"] = self.bytes
        if self.lost:
            row["lost"] = [{"from": first, "to": end} for first, end in self.lost]
        return row


class Deed(NamedTuple):
    """One action of repair: the object's key and what was done to it."""

    key: str
    did: str


class Progress(NamedTuple):
    """What is being verified, and how much has been read so far."""

    stage: str
    objects: int
    bytes: int


@dataclass
class Report:
    """All findings and repairs of one run. `ok` decides the exit code."""

    findings: list[Finding] = field(default_factory=list)
    repaired: list[Deed] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    progress: Callable[[Progress], None] = lambda _: None
    stage: str = ""
    kept: Counter[bool] = field(default_factory=Counter)
    """How many findings are kept, by `Severity.is_wrong`: each kind has its own limit."""

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong. Garbage does not count."""
        return not self.counts["wrong_left_out"] and not self.wrong

    @property
    def wrong(self) -> list[Finding]:
        """The kept findings that are wrong and were not repaired."""
        return [row for row in self.findings if row.severity.is_wrong and not row.repaired]

    @property
    def garbage(self) -> list[Finding]:
        """The kept findings about garbage that repair did not remove."""
        return [row for row in self.findings if row.severity.is_garbage and not row.repaired]

    def begin(self, stage: str) -> None:
        """Set the stage that progress reports from now on."""
        self.stage = stage
        self._notify()

    def read(self, what: str, size: int) -> None:
        """Count one object of kind `what` that was read completely and checked."""
        self.counts[what] += 1
        self.counts["objects"] += 1
        self.counts["bytes"] += size
        self._notify()

    def _notify(self) -> None:
        self.progress(Progress(self.stage, self.counts["objects"], self.counts["bytes"]))

    def add(self, finding: Finding) -> None:
        self.counts[finding.severity.value] += 1
        if finding.severity.is_garbage:
            self.counts["garbage"] += 1
            self.counts["garbage_bytes"] += finding.bytes
        # Separate limits, so that garbage cannot displace findings about what is wrong.
        wrong = finding.severity.is_wrong
        if self.kept[wrong] < FINDINGS_MAX:
            self.kept[wrong] += 1
            self.findings.append(finding)
        else:
            self.counts["wrong_left_out" if wrong else "findings_left_out"] += 1

    def did(self, key: str, what: str) -> None:
        self.repaired.append(Deed(key, what))

    def mark_repaired(self, gone: Callable[[Finding], bool]) -> None:
        """Mark the findings for which `gone` returns True as repaired."""
        self.findings = [
            replace(row, repaired=True) if not row.repaired and gone(row) else row
            for row in self.findings
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "findings": [row.as_json() for row in self.findings],
            "repaired": [{"key": deed.key, "did": deed.did} for deed in self.repaired],
            "counts": dict(sorted((name, count) for name, count in self.counts.items() if count)),
        }


def shown(ranges: tuple[OffsetRange, ...] | list[OffsetRange]) -> str:
    """Return ranges as text for people, with both ends included."""
    return ", ".join(f"{first} to {end - 1}" for first, end in ranges)
