"""Checks a WAL stream: its checkpoint and roll-ups, every number after it, every slice, its seal.

The walk continues past a damaged object, so that one run reports all damage, and the lost offsets
show as gaps between the object's neighbours. The result counts only if the greatest checkpoint has
not moved during the walk; otherwise the walk starts again from the new checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from neve import runtime
from neve.bucket.verify.content import contradictions
from neve.bucket.verify.context import Stray, VerifyContext, unreadable
from neve.bucket.verify.findings import Finding, Remedy, Severity
from neve.bucket.verify.series import below_checkpoint, number_or_checkpoint, unknown_key
from neve.cluster.recovery import INFLIGHT_MAX
from neve.errors import DamagedError, NeveError, NotFoundError, UnavailableError, UnsupportedError
from neve.log.downloads import fetch_checked
from neve.log.keys import rollup_checkpoint, wal_stream
from neve.log.series import greatest_checkpoint
from neve.log.wal import object as wal_object
from neve.log.wal.checkpoint import PartitionEnd, WalCheckpoint, read_checkpoint
from neve.log.wal.object import Kind, Slice
from neve.log.wal.reader import PartitionId, StreamTail, TailObject
from neve.settings import MIB
from neve.store.port import ObjectInfo

RESTARTS_MAX = 100
RESTART_PAUSE_SECONDS = 0.05
# Bytes reserved for a number that was not listed; objects are cut at 4 MiB by default.
NUMBER_BYTES_GUESSED = 4 * MIB


class DamagedSlice(NamedTuple):
    """Damaged batches of one partition in an object whose directory can be read."""

    key: str
    entry: Slice
    reason: str


class Examined(NamedTuple):
    """The result of reading one object. `item` is None for a seal or an unreadable object."""

    item: TailObject | None
    is_seal: bool = False
    problem: NeveError | None = None
    bad_slices: tuple[DamagedSlice, ...] = ()


class StreamResult(NamedTuple):
    """The result of one walk over a stream. `tail` lacks objects that could not be read."""

    tail: StreamTail
    problems: tuple[NeveError, ...]
    bad_slices: tuple[DamagedSlice, ...]
    hole: Finding | None


class StreamCheck:
    """Checks one stream. Objects never change, so a healthy one is not read again."""

    def __init__(self, context: VerifyContext, incarnation: int) -> None:
        self._context = context
        self._store = context.store
        self._healthy: dict[str, Examined] = {}
        self._walking = asyncio.Lock()
        self.incarnation = incarnation
        self.keys = wal_stream(incarnation)
        self.result: StreamResult | None = None

    async def walk(self) -> StreamResult:
        """Read the whole stream as it is now, and keep the result in `result`.

        Raises UnavailableError if checkpoints are written faster than the stream can be read.
        """
        async with self._walking:
            for _ in range(RESTARTS_MAX):
                rows = await self._store.list(self.keys.prefix)
                number = await greatest_checkpoint(self._store, self.keys) or 0
                result = await self._walk_from(number, rows)
                moved = await greatest_checkpoint(self._store, self.keys, above=number)
                if moved is None:
                    self.result = result
                    return result
                await runtime.sleep(RESTART_PAUSE_SECONDS)
        raise UnavailableError(self.keys.prefix, "it is checkpointed faster than it can be read")

    async def _walk_from(self, checkpoint: int, rows: Sequence[ObjectInfo]) -> StreamResult:
        payload, problems = await self._checkpoint(checkpoint)
        found = await self._read_all(
            dict.fromkeys(payload.rollups, checkpoint), rollup=True, sizes=_sizes(rows)
        )
        problems += [row.problem for row in found if row.problem is not None]
        numbers, position, sealed = await self._numbers(checkpoint, _sizes(rows))
        found += numbers
        problems += [row.problem for row in numbers if row.problem is not None]
        ends: dict[PartitionId, PartitionEnd] = {
            (bytes.fromhex(row.topic_id), row.partition): row for row in payload.partitions
        }
        kept = tuple(row.item for row in found if row.item is not None)
        tail = StreamTail(self.incarnation, checkpoint, position, sealed, kept, ends)
        self._forget_others(kept)
        bad = tuple(each for row in found for each in row.bad_slices)
        return StreamResult(tail, tuple(problems), bad, self._hole(tail, rows))

    def _forget_others(self, kept: tuple[TailObject, ...]) -> None:
        keys = {item.key for item in kept}
        self._healthy = {key: row for key, row in self._healthy.items() if key in keys}

    async def _checkpoint(self, number: int) -> tuple[WalCheckpoint, list[NeveError]]:
        if number == 0:
            return WalCheckpoint(), []
        key = self.keys.checkpoint(number)
        try:
            payload = await read_checkpoint(self._store, self.keys, number)
        except (DamagedError, UnsupportedError) as error:
            return WalCheckpoint(), [error]
        if payload is None:
            return WalCheckpoint(), [DamagedError(key, "it is listed but missing")]
        self._context.report.read("stream_checkpoints", 0)
        return payload, []

    async def _numbers(self, start: int, sizes: dict[str, int]) -> tuple[list[Examined], int, bool]:
        """Read numbers in order, up to the first that is missing or a seal.

        Returns the objects read, damaged ones included, the number after them, and whether a seal
        is there.
        """
        width = self._context.bounds.objects_at_once
        found: list[Examined] = []
        while True:
            first = start + len(found)
            wanted = {self.keys.number(at): at for at in range(first, first + width)}
            for row in await self._read_all(wanted, rollup=False, sizes=sizes):
                if isinstance(row.problem, NotFoundError) or row.is_seal:
                    return found, start + len(found), row.is_seal
                found.append(row)

    async def _read_all(
        self, wanted: dict[str, int], *, rollup: bool, sizes: dict[str, int]
    ) -> list[Examined]:
        """Read objects, given by key with the number that each must carry; keeps the order."""
        done: dict[str, Examined] = {}

        async def read(row: tuple[str, int]) -> None:
            key, number = row
            async with self._context.bounds.holding(sizes.get(key, NUMBER_BYTES_GUESSED)):
                done[key] = await self._object(key, number, rollup=rollup)

        await self._context.bounds.each(wanted.items(), read)
        return [done[key] for key in wanted]

    async def _object(self, key: str, number: int, *, rollup: bool) -> Examined:
        known = self._healthy.get(key)
        if known is not None:
            return known
        try:
            examined, size = await fetch_checked(
                self._store,
                key,
                wal_object.OBJECT_BYTES_MAX,
                lambda data: self._examine(data, key, number, rollup=rollup),
            )
        except NotFoundError as error:
            missing = DamagedError(key, "its stream's checkpoint names it, and it is not there")
            return Examined(None, problem=missing if rollup else error)
        except (DamagedError, UnsupportedError) as error:
            return await self._damaged(key, number, error, rollup=rollup)
        self._context.report.read("rollups" if rollup else "stream_numbers", size)
        if not examined.is_seal:
            self._healthy[key] = examined
        return examined

    def _examine(
        self, data: memoryview, key: str, number: int, *, rollup: bool
    ) -> tuple[Examined, int]:
        decoded = wal_object.decode(
            data, key, incarnation=self.incarnation, number=number, rollup=rollup
        )
        if decoded.header.kind is Kind.SEAL:
            return Examined(None, is_seal=True), len(data)
        bad: list[DamagedSlice] = []
        for entry in decoded.slices:
            batches = data[entry.position : entry.end]
            wal_object.check_slice(entry, batches, key)
            for first, end, reason in contradictions(batches, key):
                part = entry._replace(base_offset=first, last_offset=end - 1)
                bad.append(DamagedSlice(key, part, reason))
        item = TailObject(key, None if rollup else number, decoded.slices, None)
        return Examined(item, bad_slices=tuple(bad)), len(data)

    async def _damaged(self, key: str, number: int, error: NeveError, *, rollup: bool) -> Examined:
        """Return the bad slices of a damaged object, or `error` if its directory is unreadable."""
        try:
            data = await self._store.get(key, wal_object.OBJECT_BYTES_MAX)
            decoded = wal_object.decode_directory(
                data, key, incarnation=self.incarnation, number=number, rollup=rollup
            )
        except (NotFoundError, DamagedError, UnsupportedError):
            return Examined(None, problem=error)
        bad: list[DamagedSlice] = []
        for entry in decoded.slices:
            try:
                wal_object.check_slice(entry, data[entry.position : entry.end], key)
            except DamagedError as problem:
                bad.append(DamagedSlice(key, entry, problem.reason))
        item = TailObject(key, None if rollup else number, decoded.slices, None)
        return Examined(item, problem=None if bad else error, bad_slices=tuple(bad))

    def _hole(self, tail: StreamTail, rows: Sequence[ObjectInfo]) -> Finding | None:
        """Return a finding if the first missing number must have existed.

        A writer has at most `window` uploads in flight, so a number further ahead proves that the
        missing one was written.
        """
        broker = self._context.cluster.state.brokers.get(self.incarnation)
        window = broker.inflight if broker is not None else INFLIGHT_MAX
        # Seals do not count: a sealing process is not limited to the window.
        records = [row for row in rows if row.size > wal_object.SEAL_BYTES]
        numbers = [self.keys.number_of(row.key) for row in records]
        beyond = [at for at in numbers if at is not None and at >= tail.position + window]
        if tail.sealed or not beyond:
            return None
        return Finding(
            severity=Severity.GAP,
            key=self.keys.number(tail.position),
            what=f"it is missing, and later numbers are there up to {max(beyond)}, further than "
            f"its writer ever is ahead ({window}): readers stop here",
            do="bring it back from a copy or an older version of the bucket before its partitions "
            "get another leader",
            incarnation=self.incarnation,
        )

    def findings(self) -> list[Finding]:
        """Return findings about the stream itself.

        Damaged slices are reported by the checks of their partitions; those of deleted topics are
        notes here.
        """
        if self.result is None:
            return []
        found = [unreadable(error, self.keys.prefix) for error in self.result.problems]
        if self.result.hole is not None:
            found.append(self.result.hole)
        live = self._context.cluster.state.topics
        for bad in self.result.bad_slices:
            if bad.entry.topic_id.hex() not in live:
                what = f"a slice of topic {bad.entry.topic_id.hex()}, which is gone: {bad.reason}"
                found.append(Finding(severity=Severity.NOTE, key=bad.key, what=what))
        return found

    # -- strays ------------------------------------------------------------------------------

    async def strays(self) -> list[Stray]:
        """Return objects that the greatest checkpoint or the stream's end makes superfluous."""
        rows = await self._store.list(self.keys.prefix)
        greatest = await greatest_checkpoint(self._store, self.keys) or 0
        named: tuple[str, ...] = ()
        if greatest:
            try:
                payload = await read_checkpoint(self._store, self.keys, greatest)
            except (DamagedError, UnsupportedError):
                return []  # reported as damage; the roll-ups that it names are unknown
            if payload is None:
                return []  # replaced and trimmed meanwhile
            named = payload.rollups
        found = below_checkpoint(
            self.keys, rows, greatest, Remedy.TRIM_STREAM, incarnation=self.incarnation
        )
        for row in rows:
            stray = self._beside_numbers(row, greatest, named)
            if stray is not None:
                found.append(stray)
        return found

    def _beside_numbers(
        self, row: ObjectInfo, greatest: int, named: tuple[str, ...]
    ) -> Stray | None:
        made_for = rollup_checkpoint(self.keys, row.key)
        number = number_or_checkpoint(self.keys, row.key)
        if made_for is None and number is None:
            return unknown_key(row, self.keys.prefix)
        if made_for is not None and made_for <= greatest and row.key not in named:
            return self._leftover(row, f"checkpoint {greatest} does not name this roll-up")
        end = self._end()
        if end is not None and number is not None and number > end:
            return self._leftover(row, f"it is after the stream's end at {end}")
        return None

    def _end(self) -> int | None:
        tail = self.result.tail if self.result is not None else None
        return tail.position if tail is not None and tail.sealed else None

    def _leftover(self, row: ObjectInfo, what: str) -> Stray:
        return Stray(
            row,
            Finding(
                severity=Severity.LEFTOVER,
                key=row.key,
                what=what,
                do="harmless; --repair removes it",
                remedy=Remedy.TRIM_STREAM,
                incarnation=self.incarnation,
            ),
        )


def _sizes(rows: Sequence[ObjectInfo]) -> dict[str, int]:
    return {row.key: row.size for row in rows}


class Streams:
    """The streams of one bucket. Each is read once, and again on request."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._checks: dict[int, StreamCheck] = {}

    def of(self, incarnation: int) -> StreamCheck:
        if incarnation not in self._checks:
            self._checks[incarnation] = StreamCheck(self._context, incarnation)
        return self._checks[incarnation]

    def all(self) -> list[StreamCheck]:
        return [self._checks[incarnation] for incarnation in sorted(self._checks)]

    async def results(self, incarnations: Iterable[int], *, fresh: bool) -> list[StreamResult]:
        """Return each stream's last result, or read it now if there is none or `fresh` is set."""
        found = []
        for incarnation in dict.fromkeys(incarnations):
            stream = self.of(incarnation)
            known = None if fresh else stream.result
            found.append(known or await stream.walk())
        return found
