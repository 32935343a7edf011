"""The contract of every store: one test per rule, in a class that each store's tests inherit.

A test class inherits `StoreContract` and has a fixture `store_factory` that creates an empty store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neve import runtime
from neve.errors import ClosedError, DamagedError, ExistsError, InvalidError, NotFoundError
from neve.store.port import Store

StoreFactory = Callable[[], Store]
# Names whose order differs between "by bytes" and "folder by folder", which some servers list by.
AWKWARD_KEYS = [
    "a-b/1",
    "a.b",
    "a/b",
    "a/b-c/d",
    "a/b.c",
    "a/c/d/e",
    "a0",
    "ab/1",
    "b ü+%&#=@/x y",
    "b~",
]


async def outcome(work: Any) -> str:
    """How a call ended, by the name of its error."""
    try:
        await work
    except Exception as error:
        return type(error).__name__
    return "ok"


class StoreContract:
    async def test_reads_what_was_put(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        for data in (b"one", bytearray(b"two"), memoryview(b"xthree")[1:], b""):
            await store.put("a/b", data)
            found = await store.get("a/b")
            assert isinstance(found, memoryview)
            assert found.readonly
            assert bytes(found) == bytes(data)

    async def test_large_objects_are_whole(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        data = bytes(range(256)) * (3 << 14)  # 12 MiB: more than a multipart upload's part
        await store.create("large", data)
        assert await store.get("large") == data

    async def test_an_object_above_the_bound_is_not_read(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        await store.create("a/b", bytes(1000))
        assert len(await store.get("a/b", 1000)) == 1000
        with pytest.raises(DamagedError, match=r"it has 1000 bytes; .* is 999"):
            await store.get("a/b", 999)

    async def test_create_never_overwrites(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        await store.create("k", b"first")
        with pytest.raises(ExistsError) as caught:
            await store.create("k", b"second")
        assert caught.value.key == "k"
        assert await store.get("k") == b"first"
        await store.put("k", b"third")
        assert await store.get("k") == b"third"

    async def test_one_of_sixteen_racing_creates_wins(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        outcomes = await runtime.gather(
            *(outcome(store.create("race/1", b"%d" % racer)) for racer in range(16))
        )
        assert sorted(outcomes) == ["ExistsError"] * 15 + ["ok"]
        assert await store.get("race/1") == b"%d" % outcomes.index("ok")

    async def test_absent_keys_are_not_found(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        await store.put("a/b/c", b"x")
        for key in ("nothing", "a/b", "a/b/c2", "x/y/z"):
            with pytest.raises(NotFoundError):
                await store.get(key)
            with pytest.raises(NotFoundError):
                await store.get_range(key, 0, 1)
            with pytest.raises(NotFoundError):
                await store.get_ranges(key, [(0, 1), (5, 9)])

    async def test_deleted_keys_are_gone_and_may_come_back(
        self, store_factory: StoreFactory
    ) -> None:
        store = store_factory()
        await store.delete("k")
        await store.create("k", b"1")
        await store.delete("k")
        await store.delete("k")
        with pytest.raises(NotFoundError):
            await store.get("k")
        assert list(await store.list("")) == []
        await store.create("k", b"2")
        assert await store.get("k") == b"2"

    @pytest.mark.parametrize(
        ("start", "end"), [(0, 5), (2, 4), (3, 100), (4, 5), (5, 6), (9, 12), (2, 2), (0, 0)]
    )
    async def test_ranges_are_clamped(
        self, store_factory: StoreFactory, start: int, end: int
    ) -> None:
        store = store_factory()
        await store.put("k", b"01234")
        assert bytes(await store.get_range("k", start, end)) == b"01234"[start:end]

    async def test_ranges_of_an_empty_object_are_empty(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        await store.put("k", b"")
        assert bytes(await store.get_range("k", 0, 9)) == b""

    async def test_several_ranges_in_the_order_asked_for(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        data = runtime.token(5 << 20)
        await store.put("k", data)
        ranges = [
            (4 << 20, 9 << 20),
            (0, 10),
            (5, 20),
            (9 << 20, 10 << 20),
            (7, 7),
            (1 << 20, 99 + (1 << 20)),
        ]
        found = await store.get_ranges("k", ranges)
        assert [bytes(part) for part in found] == [data[start:end] for start, end in ranges]
        assert await store.get_ranges("k", []) == []

    @pytest.mark.parametrize("bounds", [(-1, 2), (3, 2)])
    async def test_impossible_ranges_are_refused(
        self, store_factory: StoreFactory, bounds: tuple[int, int]
    ) -> None:
        store = store_factory()
        await store.put("k", b"01234")
        with pytest.raises(InvalidError):
            await store.get_range("k", *bounds)
        with pytest.raises(InvalidError):
            await store.get_ranges("k", [bounds])

    async def test_lists_all_with_a_prefix_in_order(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        for key in reversed(AWKWARD_KEYS):
            await store.create(key, key.encode())
        for prefix in (
            "",
            "a",
            "a/",
            "a/b",
            "a/b-",
            "a/c/",
            "b",
            "a/b.c",
            "c",
            "zz/y",
            "b ü+%&#=@/",
        ):
            rows = await store.list(prefix)
            assert [row.key for row in rows] == [k for k in AWKWARD_KEYS if k.startswith(prefix)]
            assert all(row.size == len(row.key.encode()) for row in rows)
            assert all(abs(row.modified_ms - runtime.now_ms()) < 600_000 for row in rows)

    async def test_lists_only_what_is_above_after(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        for key in AWKWARD_KEYS:
            await store.create(key, b"x")
        for prefix in ("", "a", "a/", "a/b", "b"):
            for after in (*AWKWARD_KEYS, "a", "a/", "a/b/", "a//", "0", "~"):
                wanted = [k for k in AWKWARD_KEYS if k.startswith(prefix) and k > after]
                rows = await store.list(prefix, after)
                assert [row.key for row in rows] == wanted, (prefix, after)

    async def test_lists_more_than_one_page(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        keys = [f"s/{number:020d}" for number in range(1203)]
        for start in range(0, len(keys), 50):
            await runtime.gather(*(store.put(key, b"x") for key in keys[start : start + 50]))
        assert [row.key for row in await store.list("s/")] == keys
        assert [row.key for row in await store.list("s/", keys[100])] == keys[101:]

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "a/../b",
            "./a",
            "a\x00b",
            "a\nb",
            "x" * 256,
            chr(0xD800),
            "é" * 128,
            "/".join(["x" * 200] * 6),
        ],
    )
    async def test_bad_keys_are_refused(self, store_factory: StoreFactory, key: str) -> None:
        store = store_factory()
        for work in (
            store.get(key),
            store.put(key, b""),
            store.create(key, b""),
            store.delete(key),
        ):
            with pytest.raises(InvalidError):
                await work

    async def test_a_closed_store_refuses(self, store_factory: StoreFactory) -> None:
        store = store_factory()
        await store.put("k", b"x")
        await store.close()
        for work in (store.get("k"), store.put("k", b""), store.list("")):
            with pytest.raises(ClosedError):
                await work
