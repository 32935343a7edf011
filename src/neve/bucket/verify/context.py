"""What all checks share: the store, the current cluster state, limits, and the report.

A bucket in use changes while it is checked. So before a check reports a problem, it reads
everything that the decision depends on again and repeats the decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from neve import runtime
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.findings import Finding, PartitionRef, Report, Severity
from neve.cluster.log import ClusterLog
from neve.cluster.state import PartitionState
from neve.errors import NeveError, UnsupportedError
from neve.log.keys import SeriesKeys, segment_prefix
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Skip
from neve.log.manifest.skips import OffsetRange, clipped_skips, without
from neve.log.reading.damage import ANY_URL, skip_command
from neve.store.port import ObjectInfo, Store


class Stray(NamedTuple):
    """An object that nothing seems to refer to, and the finding to report if it is still there."""

    row: ObjectInfo
    finding: Finding


class Scope(Protocol):
    """A part of the bucket that is searched for unreferenced objects."""

    async def strays(self) -> list[Stray]: ...


@dataclass
class VerifyContext:
    """One run of verify."""

    store: Store
    cluster: ClusterLog
    report: Report
    bounds: Bounds
    url: str = ANY_URL
    first_strays: list[tuple[Scope, list[Stray]]] = field(default_factory=list)
    watched_at: float = 0.0
    """When `watch` last found a stray, in seconds of the monotonic clock."""

    async def watch(self, scope: Scope) -> None:
        """Remember the strays of a scope. `report_strays` later reports those still there."""
        found = await scope.strays()
        if found:
            self.first_strays.append((scope, found))
            self.watched_at = runtime.monotonic()

    async def partition_now(self, place: PartitionRef) -> PartitionState | None:
        """Refresh the cluster log and return a partition's state; None if it no longer exists."""
        topic = (await self.cluster.refresh()).topics.get(place.topic_id)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        return topic.partitions[place.partition]

    def skip_commands(self, place: PartitionRef, lost: Sequence[OffsetRange]) -> str:
        """Return the shell commands that give these offsets up for lost."""
        return "; ".join(
            skip_command(self.url, place.topic, place.partition, first, end) for first, end in lost
        )


def manifest_of(store: Store, place: PartitionRef) -> Manifest:
    return Manifest(store, series_of(place))


def series_of(place: PartitionRef) -> SeriesKeys:
    return manifest_keys(place.topic, bytes.fromhex(place.topic_id), place.partition)


def segments_of(place: PartitionRef) -> str:
    """Return the key prefix of a partition's segments and bundles."""
    return segment_prefix(place.topic, bytes.fromhex(place.topic_id), place.partition)


def not_given_up(lost: Sequence[OffsetRange], skips: Sequence[Skip]) -> list[OffsetRange]:
    """Return those of the lost offsets that no skip covers."""
    return [
        row for first, end in lost for row in without(first, end, clipped_skips(skips, first, end))
    ]


def unreadable(error: NeveError, key: str, place: PartitionRef | None = None) -> Finding:
    """Return the finding for an unreadable object that other objects depend on."""
    what = getattr(error, "reason", str(error))
    do = (
        "upgrade Neve"
        if isinstance(error, UnsupportedError)
        else "nothing can stand in for it: bring it back from a copy or an older version of the "
        "bucket"
    )
    return Finding(
        severity=Severity.DAMAGE, key=getattr(error, "key", key), what=what, do=do, place=place
    )


async def confirmed(
    check: Callable[[], Awaitable[list[Finding]]], attempts: int = 2
) -> list[Finding]:
    """Run `check` again while it finds something, and return the findings of the last run.

    It must read everything again at each call.
    """
    found = await check()
    for _ in range(attempts - 1):
        if not found:
            break
        found = await check()
    return found
