"""The probe: good stores pass and stay clean, broken ones are refused by the rule they break."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from neve import runtime
from neve.errors import ExistsError, NotFoundError, UnavailableError
from neve.settings import StoreSettings
from neve.store.faults import Fault, Faults, FaultyStore, Rule
from neve.store.folder import FolderStore
from neve.store.memory import MemoryStore
from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo
from neve.store.probe import RULES, BrokenRuleError, inspect, probe
from neve.store.url import stack


async def test_memory_and_folder_pass_and_keep_nothing(tmp_path: Path) -> None:
    for store in (MemoryStore(), FolderStore(tmp_path)):
        reports = await probe(store)
        assert [report.rule for report in reports] == list(RULES)
        assert all(report.ok and report.says for report in reports)
        assert list(await store.list("")) == []


class Overwriting(MemoryStore):
    async def create(self, key: str, data: Buffer) -> None:
        await self.put(key, data)


class Racy(MemoryStore):
    """LookupRetries, waits, writes."""

    async def create(self, key: str, data: Buffer) -> None:
        await runtime.sleep(0)
        if key in self.bucket.objects:
            raise ExistsError(key, "taken")
        await runtime.sleep(0)
        self.bucket.write(key, data)


class Lying(MemoryStore):
    """The last of the racers overwrites, though another was told that it won."""

    async def create(self, key: str, data: Buffer) -> None:
        try:
            await super().create(key, data)
        except ExistsError:
            if bytes(data).startswith(b"racer"):
                self.bucket.write(key, data)
            raise


class StaleRead(MemoryStore):
    """Remembers the first answer for a key."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, bytes] = {}

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        return memoryview(self.seen.setdefault(key, bytes(await super().get(key, bytes_max))))


class StaleAbsence(MemoryStore):
    """Remembers that a key was not there, as a caching proxy might."""

    def __init__(self) -> None:
        super().__init__()
        self.absent: dict[str, None] = {}

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        if key in self.absent:
            raise NotFoundError(key, "404 from a cache")
        try:
            return await super().get(key, bytes_max)
        except NotFoundError:
            self.absent[key] = None
            raise


class StaleList(MemoryStore):
    """A listing is as the one before should have been."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Sequence[ObjectInfo] = []

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        shown, self.before = self.before, await super().list(prefix, after)
        return shown


class UndeadRead(MemoryStore):
    """A deleted key can be read a while longer."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: dict[str, memoryview] = {}

    async def delete(self, key: str) -> None:
        if key in self.bucket.objects:
            self.deleted[key] = await super().get(key)
        await super().delete(key)

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        return self.deleted.pop(key) if key in self.deleted else await super().get(key, bytes_max)


class UndeadList(MemoryStore):
    """A listing still shows what was deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[ObjectInfo] = []

    async def delete(self, key: str) -> None:
        self.deleted += await super().list(key)
        await super().delete(key)

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        rows = [row for row in self.deleted if row.key.startswith(prefix) and row.key > after]
        return sorted([*rows, *await super().list(prefix, after)])


class WholeRange(MemoryStore):
    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        return await self.get(key)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Overwriting, "create-once"),
        (Racy, "create-race"),
        (Lying, "create-race"),
        (StaleRead, "read-after-write"),
        (StaleAbsence, "read-after-write"),
        (StaleList, "list-after-write"),
        (UndeadRead, "read-after-delete"),
        (UndeadList, "list-after-delete"),
        (WholeRange, "ranges"),
    ],
)
async def test_a_broken_store_is_refused_by_name_of_the_rule(broken: Any, rule: str) -> None:
    store = broken()
    with pytest.raises(BrokenRuleError, match=rule) as caught:
        await probe(store)
    assert caught.value.rule == rule
    reports = {report.rule: report for report in await inspect(store)}
    assert not reports[rule].ok
    assert reports[rule].detail
    assert store.bucket.keys == []


def test_a_store_that_only_stumbles_passes_through_the_stack() -> None:
    async def scenario() -> None:
        faults = Faults(fails=0.05, slow_down=0.05, fails_after_effect=0.05, conflict=0.1)
        faulty = FaultyStore(MemoryStore(), faults)
        wrapped = stack(faulty, StoreSettings(retry_attempts_max=20))
        for _ in range(20):
            await probe(wrapped.store)
        assert faulty.injected > 50
        await wrapped.close()

    runtime.simulate(scenario(), seed=3)


def test_a_store_that_cannot_be_used_is_not_called_broken() -> None:
    async def scenario() -> None:
        rule = Rule(Fault.CONFLICT, times=1000)
        with pytest.raises(UnavailableError):
            await probe(FaultyStore(MemoryStore(), script=[rule]))
        with pytest.raises(UnavailableError):
            await probe(FaultyStore(MemoryStore(), Faults(fails=1.0)))

    runtime.simulate(scenario(), seed=1)
