"""Maintains any number of partitions, in units of work that any process can do.

A `Job` is the kind of work and the bucket; a `Unit` is one partition of it. Both can be pickled, so
that another process or machine can do the work; it opens the bucket itself. A failure in one
partition is recorded in its `Outcome` and does not stop the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from neve import runtime
from neve.bucket.maintain.checks import ListedCheck
from neve.bucket.maintain.clock import check_clock
from neve.bucket.maintain.expire import expire_partition
from neve.bucket.maintain.indexes import build_partition_indexes
from neve.bucket.maintain.kafscale_files import build_kafscale_files, list_kafscale
from neve.bucket.maintain.merge import merge_partition
from neve.bucket.maintain.ownership import take_ownership
from neve.bucket.model import PartitionName
from neve.bucket.verify import Options, Report
from neve.cluster.log import ClusterLog, NoTopicError
from neve.errors import InvalidError, NeveError
from neve.log.segment.kafscale import ForeignSegment
from neve.log.wal.stores import connect_bucket
from neve.settings import Settings, declared, load
from neve.store.port import Store

Kind: TypeAlias = Literal["merge", "expire", "verify", "build-index", "take-ownership"]
LayoutName: TypeAlias = Literal["neve", "kafscale"]


@dataclass(frozen=True)
class Job:
    """What to do to which bucket. `settings` and `options` are pairs of name and value."""

    kind: Kind
    url: str
    layout: LayoutName = "neve"
    dry_run: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def load_settings(self) -> Settings:
        return load(flags=dict(self.settings))


@dataclass(frozen=True)
class Unit:
    """One partition. `bytes` is the size to process as of a listing, or 0 if unknown."""

    topic: str
    partition: int
    bytes: int = 0


@dataclass
class Outcome:
    """The result for one partition, or the error that prevented one."""

    topic: str
    partition: int
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the unit succeeded and its result has no failures or damage."""
        left = (self.result.get(name) for name in ("damaged", "failed"))
        return not self.error and self.result.get("ok", True) and not any(left)


def settings_given(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the settings that differ from their defaults as text, to pass to another process."""
    rows = []
    for name, about in declared().items():
        value = getattr(getattr(settings, about.group), about.field)
        if value != about.default:
            rows.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return tuple(rows)


async def plan_units(
    store: Store,
    job: Job,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
) -> list[Unit]:
    """Return the partitions of a job, largest first, which balances the load of workers."""
    found = await (_foreign_units(store) if job.layout == "kafscale" else _units(store))
    missing = sorted(set(topics or ()) - {unit.topic for unit in found})
    if missing:
        raise NoTopicError(f"there is no topic {', '.join(map(repr, missing))}")
    chosen = [
        unit
        for unit in found
        if (topics is None or unit.topic in topics)
        and (partitions is None or unit.partition in partitions)
    ]
    if partitions is not None and not chosen:
        raise InvalidError(f"no topic has a partition {', '.join(map(str, partitions))}")
    return sorted(chosen, key=lambda unit: (-unit.bytes, unit.topic, unit.partition))


async def _units(store: Store) -> list[Unit]:
    state = await ClusterLog(store).must_exist()
    return [
        Unit(topic.name, partition)
        for topic in state.topics.values()
        for partition in range(len(topic.partitions))
    ]


async def _foreign_units(store: Store) -> list[Unit]:
    found = (await list_kafscale(store)).partitions
    return [
        Unit(name.topic, name.partition, sum(row.segment_bytes for row in rows))
        for name, rows in found.items()
    ]


_WORK: dict[str, Callable[..., Awaitable[Any]]] = {
    "merge": merge_partition,
    "expire": expire_partition,
    "build-index": build_partition_indexes,
    "take-ownership": take_ownership,
}


class Worker:
    """Does units of one job over one store. Call `end` after all units."""

    def __init__(self, store: Store, job: Job) -> None:
        self._store = store
        self._job = job
        self._settings = job.load_settings()
        self._clock_checked = False
        self._foreign: dict[PartitionName, list[ForeignSegment]] | None = None
        self._listed: ListedCheck | None = None
        self._verified: list[tuple[Outcome, Report]] = []

    async def do(self, unit: Unit) -> Outcome:
        """Maintain one partition. A failure is recorded in the outcome."""
        outcome = Outcome(unit.topic, unit.partition)
        try:
            if self._job.kind == "verify":
                await self._verify(outcome)
            else:
                outcome.result = await self._do(unit)
        except NeveError as error:
            outcome.error = str(error)
        return outcome

    async def _verify(self, outcome: Outcome) -> None:
        if self._job.layout != "neve":
            raise InvalidError("`neve storage verify --layout kafscale` checks a KafScale bucket")
        if self._listed is None:
            options = Options(url=self._job.url, **dict(self._job.options))
            self._listed = ListedCheck(self._store, options)
        report = await self._listed.check(outcome.topic, outcome.partition)
        self._verified.append((outcome, report))

    async def end(self) -> None:
        """Complete the outcomes of a verify job. Call this after all units."""
        if self._listed is not None:
            await self._listed.settle()
        for outcome, report in self._verified:
            outcome.result = report.as_json()

    async def _do(self, unit: Unit) -> dict[str, Any]:
        job = self._job
        options: dict[str, Any] = dict(job.options)
        if job.layout == "kafscale":
            return await self._do_foreign(unit)
        if job.kind == "expire":
            await self._check_clock(options)
            options["clock_checked"] = True
        options |= {"dry_run": job.dry_run, "settings": self._settings}
        done = await _WORK[job.kind](self._store, unit.topic, unit.partition, **options)
        return dataclasses.asdict(done)

    async def _check_clock(self, options: dict[str, Any]) -> None:
        """Check this machine's clock once for all partitions."""
        if not self._clock_checked and not self._job.dry_run:
            skew = {name: options[name] for name in ("skew_max_ms",) if name in options}
            await check_clock(self._store, **skew)
        self._clock_checked = True

    async def _do_foreign(self, unit: Unit) -> dict[str, Any]:
        if self._job.kind != "build-index":
            raise InvalidError(
                f"{self._job.kind} is for Neve's own topics: `neve import kafscale` makes one of "
                f"{unit.topic!r}"
            )
        if self._foreign is None:
            self._foreign = (await list_kafscale(self._store)).partitions
        name = PartitionName(unit.topic, unit.partition)
        rows = self._foreign.get(name, [])
        done = await build_kafscale_files(self._store, name, rows, dry_run=self._job.dry_run)
        return dataclasses.asdict(done)


async def do_units(job: Job, units: Iterable[Unit]) -> list[Outcome]:
    """Open the bucket, do these units one after the other, and return their outcomes."""
    stacked = connect_bucket(job.url, job.load_settings())
    try:
        worker = Worker(stacked.store, job)
        outcomes = [await worker.do(unit) for unit in units]
        await worker.end()
        return outcomes
    finally:
        await stacked.close()


async def do_here(
    store: Store,
    job: Job,
    units: Sequence[Unit],
    *,
    at_once: int = 1,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Do all units in this process, `at_once` at a time; outcomes in the order of the units."""
    done: dict[Unit, Outcome] = {}
    worker = Worker(store, job)
    source = iter(units)

    async def take() -> None:
        for unit in source:
            done[unit] = await worker.do(unit)
            on_outcome(done[unit])

    await runtime.gather(*(take() for _ in range(max(1, min(at_once, len(units))))))
    await worker.end()
    return [done[unit] for unit in units]
