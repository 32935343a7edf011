"""Verify beside a bucket in use: writers, tiering, merging, retention, take-overs; no false alarm.

The same life with `--repair`: what repair dooms is started again, and nothing acknowledged is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from neve import runtime
from neve.bucket.repair import verify_and_repair
from neve.bucket.verify import Finding, Options, Report, Severity, verify
from neve.cluster.node import Node
from neve.cluster.state import Topic
from neve.errors import NeveError
from neve.log.keys import segment_name
from neve.log.log_start import move_start
from neve.records.reference import Record, build_batch
from neve.settings import CacheSettings, SegmentSettings, Settings, StoreSettings, WalSettings
from neve.store.faults import Faults, FaultyStore, Latencies, Latency
from neve.store.memory import MemoryStore
from neve.store.port import Store
from neve.store.url import stack
from simulation.jobs import manifest_of, merge
from simulation.truth import read_all
from support.node_world import take_over

TOPIC, PARTITIONS = "events", 3
SETTINGS = Settings(
    store=StoreSettings(request_timeout_ms=10_000),
    wal=WalSettings(linger_ms=0, inflight_max=4, tail_objects=16),
    segment=SegmentSettings(bytes=2 * 1024, ms=2_000, checkpoint_numbers=4, index_interval=10),
    cache=CacheSettings(tail_bytes=8 * 1024),
)
SLOW = Latencies.of(write=Latency(8, 80), read=Latency(4, 40))


@dataclass
class Life:
    """One bucket, its leader, and everything that goes on in it."""

    raw: MemoryStore = field(default_factory=MemoryStore)
    latencies: Latencies = SLOW
    node: Node | None = None
    topic: Topic | None = None
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    alive: bool = True

    def store(self) -> Store:
        slow = FaultyStore(self.raw, Faults(), latencies=self.latencies)
        return stack(slow, SETTINGS.store).store

    async def lead(self) -> None:
        node = await Node.start(self.store(), SETTINGS, node_id=1)
        if self.topic is None:
            self.topic = await node.cluster.create_topic(TOPIC, PARTITIONS)
        await take_over(node, [TOPIC])
        self.node = node

    async def again(self, work: Callable[[], Awaitable[None]]) -> None:
        while self.alive:
            await runtime.sleep(runtime.chance().uniform(0.02, 0.3))
            with contextlib.suppress(NeveError):
                await work()

    async def produce(self) -> None:
        node, topic = self.node, self.topic
        assert node is not None
        assert topic is not None
        partition = runtime.chance().randrange(PARTITIONS)
        payload = runtime.token(16)
        batch = bytearray(build_batch([Record(0, 1_000, None, payload)]))
        appended = node.leader(topic.name, partition).append(batch)
        await appended.commit.wait()
        self.acknowledged[partition, appended.base_offset] = payload

    async def tend(self) -> None:
        assert self.node is not None
        await self.node.run_due_work()
        await self.node.collect()

    async def merge(self) -> None:
        await runtime.sleep(2)
        assert self.topic is not None
        partition = runtime.chance().randrange(PARTITIONS)
        store = self.store()
        manifest = manifest_of(store, self.topic, partition)
        await manifest.refresh()
        await merge(store, self.topic, partition, manifest)

    async def expire(self) -> None:
        await runtime.sleep(3)
        assert self.node is not None
        log = self.node.leader(TOPIC, runtime.chance().randrange(PARTITIONS)).log
        if log.tiered_offset > 60:
            await move_start(log.manifest, log.tiered_offset - 60, end=log.high_watermark)

    async def take_over(self) -> None:
        await runtime.sleep(runtime.chance().uniform(5, 20))
        before = self.node
        await self.lead()
        if before is not None:
            await before.abort()

    async def play(self, work: Callable[[Store], Awaitable[Report]], rounds: int) -> list[Report]:
        await self.lead()
        background = runtime.Tasks()
        for each in (self.produce, self.produce, self.produce, self.tend, self.merge, self.expire):
            background.start(self.again(each))
        background.start(self.again(self.take_over))
        reports = []
        for _ in range(rounds):
            await runtime.sleep(runtime.chance().uniform(1, 5))
            reports.append(await work(self.store()))
        self.alive = False
        await background.close()
        assert self.node is not None
        await self.node.abort()
        return reports


def is_of_a_lost_merge(finding: Finding) -> bool:
    """A merge whose segments changed before it could list its own leaves true orphans."""
    name = segment_name(finding.key)
    return finding.severity is Severity.ORPHAN and name is not None and name.incarnation == 0


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_reported_beside_a_live_writer(seed: int) -> None:
    async def main() -> list[Report]:
        options = Options(settle_seconds=20)
        return await Life().play(lambda store: verify(store, options), rounds=3)

    reports = runtime.simulate(main(), seed=seed)
    alarms = [row for report in reports for row in (*report.wrong, *report.garbage)]
    assert [row for row in alarms if not is_of_a_lost_merge(row)] == []
    assert reports[-1].counts["segments"] > 3
    assert reports[-1].counts["stream_numbers"] > 0


@pytest.mark.parametrize("seed", range(2))
def test_the_same_life_has_findings_once_something_is_really_lost(seed: int) -> None:
    async def main() -> list[Report]:
        life = Life()

        async def harm(store: Store) -> Report:
            assert life.node is not None
            manifest = life.node.leader(TOPIC, 0).log.manifest
            await manifest.refresh()
            rows = await manifest.segments()
            if rows:
                life.raw.bucket.remove(rows[-1].key)
            return await verify(store, Options(settle_seconds=0, probe=False))

        return await life.play(harm, rounds=2)

    reports = runtime.simulate(main(), seed=seed)
    found = [row for report in reports for row in report.findings]
    assert any(row.severity is Severity.DAMAGE for row in found)


@pytest.mark.parametrize("seed", range(2))
def test_repair_without_patience_costs_a_writer_only_another_upload(seed: int) -> None:
    """A slow writer, and a quick repair that gives nothing time to settle: it dooms uploads."""

    async def main() -> tuple[list[Report], Life, dict[int, dict[int, bytes]], dict[int, int]]:
        life = Life(latencies=Latencies.of(write=Latency(400, 2_000), read=Latency(4, 40)))
        options = Options(settle_seconds=0, probe=False)
        reports = await life.play(lambda _: verify_and_repair(life.raw, options), rounds=20)
        heir = await Node.start(life.raw, SETTINGS, node_id=2)
        await take_over(heir, [TOPIC])
        starts, logs = await read_all(life.raw, TOPIC)
        await heir.abort()
        return reports, life, logs, starts

    reports, life, logs, starts = runtime.simulate(main(), seed=seed)
    assert not [
        row
        for report in reports
        for row in report.findings
        if row.severity in (Severity.DAMAGE, Severity.GAP)
    ]
    assert any(deed.did.startswith("doomed") for report in reports for deed in report.repaired)
    assert life.acknowledged
    for (partition, offset), payload in life.acknowledged.items():
        if offset >= starts[partition]:
            assert logs[partition][offset] == payload
