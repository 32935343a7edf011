"""The bucket in memory."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.store.memory import MemoryBucket, MemoryStore
from support.store_contract import StoreContract, StoreFactory


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return MemoryStore


async def test_stores_over_one_bucket_see_each_other() -> None:
    bucket = MemoryBucket()
    await MemoryStore(bucket).put("k", b"x")
    assert await MemoryStore(bucket).get("k") == b"x"


async def test_a_buffer_that_is_reused_does_not_change_the_object() -> None:
    store = MemoryStore()
    buffer = bytearray(b"before")
    await store.put("k", buffer)
    buffer[:] = b"after!"
    assert await store.get("k") == b"before"


def test_calls_interleave() -> None:
    async def scenario() -> list[str]:
        store = MemoryStore()
        order: list[str] = []

        async def worker(name: str) -> None:
            for step in range(3):
                await store.put(name, b"x")
                order.append(f"{name}{step}")

        await runtime.gather(worker("a"), worker("b"))
        return order

    assert runtime.simulate(scenario(), seed=1) == ["a0", "b0", "a1", "b1", "a2", "b2"]
