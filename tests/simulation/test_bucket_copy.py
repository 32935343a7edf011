"""docs/operators/backup.md: a bucket copied in the page's order, while a node writes to it."""

from __future__ import annotations

import contextlib
import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from neve import runtime
from neve.bucket.verify import Options, verify
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.node import Node
from neve.errors import NotFoundError
from neve.settings import MaintenanceSettings, Settings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import append, send, small_settings, started, successor, values_of

PAGE = Path(__file__).parents[2] / "docs" / "operators" / "backup.md"
PARTITIONS = 2
ROUNDS_MAX = 8
SEEDS = range(12)

Filters = list[tuple[str, str]]


def passes() -> list[Filters]:
    """The filters of each command that the page gives for a running broker, in order."""
    found = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return [filters_of(line) for line in found[1].splitlines()]


def filters_of(line: str) -> Filters:
    words = shlex.split(line)
    assert words[:3] == ["aws", "s3", "sync"]
    assert words[5] == "--size-only"
    flags = words[6:]
    return list(zip(flags[::2], flags[1::2], strict=True))


def selects(filters: Filters, key: str) -> bool:
    """Whether the AWS CLI would copy a key: the last filter that matches decides."""
    chosen = True
    for flag, pattern in filters:
        if fnmatchcase(key, pattern):
            chosen = flag == "--include"
    return chosen


class Copy:
    """A copy of a bucket by a tool that lists first, and then takes its time for each object."""

    def __init__(self, source: MemoryStore) -> None:
        self._source = source
        self.bucket = MemoryBucket()
        self.store = MemoryStore(self.bucket)

    async def sync(self, filters: Filters) -> None:
        rows = await self._source.list("")
        for row in rows:
            if row.key in self.bucket.objects or not selects(filters, row.key):
                continue
            await runtime.sleep(0.002 + 0.01 * runtime.chance().random())
            with contextlib.suppress(NotFoundError):  # deleted since it was listed
                await self.store.create(row.key, bytes(await self._source.get(row.key)))


class Writing:
    """A node with its background loops, and records that it acknowledges one after the other."""

    def __init__(self, node: Node, settings: Settings) -> None:
        self._node = node
        self._loops = BackgroundLoops(node, settings, on_fenced=lambda _: None)
        self._tasks = runtime.Tasks(on_failure=self._failed)
        self.acknowledged: list[list[str]] = [[] for _ in range(PARTITIONS)]

    def _failed(self, failure: BaseException) -> None:
        raise failure

    def start(self) -> None:
        self._loops.start()
        for partition in range(PARTITIONS):
            self._tasks.start(self._write(partition), name=f"writer-{partition}")

    async def _write(self, partition: int) -> None:
        number = 0
        while True:
            values = [f"{partition}/{number}"]
            now_ms = runtime.now_ms()
            await append(self._node, values, partition, timestamp=now_ms).commit.wait()
            self.acknowledged[partition] += values
            number += 1
            await runtime.sleep(0.001 + 0.04 * (1 + partition) * runtime.chance().random())

    async def stop(self) -> None:
        await self._tasks.close()
        await self._loops.close()
        await self._node.abort()


async def copied_while_written(
    source: MemoryStore, order: list[Filters]
) -> tuple[Copy, list[list[str]], list[list[str]], int]:
    """The copy; what was acknowledged before its ordered passes and in all; rounds it took."""
    settings = Settings(
        wal=small_settings(tail_objects=24).wal,
        segment=small_settings(segment_bytes=700, checkpoint_numbers=3).segment,
        maintenance=MaintenanceSettings(interval_ms=20, gc_interval_ms=100),
    )
    writing = Writing(await started(source, settings, partitions=PARTITIONS), settings)
    writing.start()
    await runtime.sleep(2)
    copy = Copy(source)
    await copy.sync([])
    before = [list(values) for values in writing.acknowledged]
    rounds = 0
    is_whole = False
    while not is_whole and rounds < ROUNDS_MAX:
        rounds += 1
        for filters in order:
            await copy.sync(filters)
        report = await verify(copy.store, Options(probe=False, settle_seconds=0))
        is_whole = report.ok
    assert is_whole, report.wrong
    await writing.stop()
    return copy, before, writing.acknowledged, rounds


def begins_with(longer: list[str], shorter: list[str]) -> bool:
    return longer[: len(shorter)] == shorter


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_in_order_has_every_record_acknowledged_before_it(seed: int) -> None:
    async def scenario() -> None:
        source = MemoryStore(MemoryBucket())
        copy, before, in_all, _ = await copied_while_written(source, passes())
        for partition in range(PARTITIONS):
            values = await values_of(copy.store, partition)
            assert len(before[partition]) > 20
            assert begins_with(values, before[partition])
            assert begins_with(in_all[partition], values)
        node = await successor(copy.store)
        await send(node, ["after the copy"])
        assert (await values_of(copy.store))[-1] == "after the copy"
        await node.close()

    runtime.simulate(scenario(), seed=seed)


def outcome_of(order: list[Filters], seed: int) -> str:
    """How a copy in this order ends."""

    async def scenario() -> str:
        source = MemoryStore(MemoryBucket())
        try:
            copy, before, _, rounds = await copied_while_written(source, order)
        except AssertionError:
            return "never whole"
        for partition in range(PARTITIONS):
            if not begins_with(await values_of(copy.store, partition), before[partition]):
                return "records missing"
        return "again" if rounds > 1 else "whole"

    return runtime.simulate(scenario(), seed=seed)


def test_the_order_matters() -> None:
    """In the opposite order, records are missing from copies in which verify finds no fault."""
    backwards = [outcome_of(passes()[::-1], seed) for seed in SEEDS]
    assert "records missing" in backwards


def test_the_passes_select_every_key_that_a_reader_needs() -> None:
    keys = [
        "meta/log/00000000000000000007",
        "meta/log/checkpoint/00000000000000000007",
        "wal/00000000000000000003/00000000000000000007",
        "wal/00000000000000000003/checkpoint/00000000000000000007",
        "wal/00000000000000000003/rollup/00000000000000000007-0123456789abcdef",
        "topics/orders.00/manifest/0000000002/00000000000000000007",
        "topics/orders.00/manifest/0000000002/checkpoint/00000000000000000007",
        "topics/orders.00/manifest/0000000002/run/0123456789abcdef",
        "topics/orders.00/0000000002/segment-00000000000000000100-0-0.kfs",
        "topics/orders.00/0000000002/segment-00000000000000000100-0-0.index",
    ]
    chosen = [[at for at, each in enumerate(passes()) if selects(each, key)] for key in keys]
    assert chosen == [[0], [1], [2], [3], [4], [5], [6], [7], [8], [8]]
