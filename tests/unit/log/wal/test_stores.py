"""Each call for a stream goes to the store of the stream, and all others to the bucket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest

from neve import runtime
from neve.errors import InvalidError, NotFoundError, StoreFailedError, UnavailableError
from neve.log.keys import WAL_STORE_KEY, wal_stream
from neve.log.wal.seal import Sealer
from neve.log.wal.store_identity import WalStoreRef, create_identity, read_identity
from neve.log.wal.stores import (
    NamedStore,
    StreamPlaces,
    StreamStores,
    WalStoreUnavailableError,
    connect_bucket,
    own_store_url,
    places_of,
)
from neve.settings import load
from neve.store.memory import MemoryStore
from neve.store.wrapper import Wrapper
from support.scripted_store import ScriptedStore, in_simulation

CLUSTER = "c"


class World:
    """A bucket, and the stores `a` and `b`."""

    def __init__(self) -> None:
        self.main = MemoryStore()
        self.stores = {"a": ScriptedStore(), "b": ScriptedStore()}
        named = {name: NamedStore(f"memory://{name}", row) for name, row in self.stores.items()}
        self.places = StreamPlaces(named)
        self.store = StreamStores(self.main, self.places)

    async def learn(self, position: int, streams: Mapping[int, str]) -> None:
        refs = {}
        for incarnation, name in streams.items():
            identity = await create_identity(self.stores[name], CLUSTER, name)
            assert identity is not None
            refs[incarnation] = WalStoreRef(name=name, url="", store_id=identity.store_id)
        self.places.learn(CLUSTER, position, refs)


def key_of(incarnation: int, number: int = 0) -> str:
    return wal_stream(incarnation).number(number)


@in_simulation
async def test_calls_go_to_the_store_of_the_stream() -> None:
    world = World()
    await world.learn(9, {2: "a", 3: "b"})
    store = world.store
    for incarnation in (1, 2, 3):
        await store.create(key_of(incarnation), b"%d-0" % incarnation)
        await store.put(key_of(incarnation, 1), b"%d-1" % incarnation)
    await store.create("meta/log/x", b"x")
    for incarnation in (1, 2, 3):
        key = key_of(incarnation)
        assert bytes(await store.get(key)) == b"%d-0" % incarnation
        assert bytes(await store.get_range(key, 1, 3)) == b"-0"
        ranges = await store.get_ranges(key, [(0, 1), (2, 3)])
        assert [bytes(row) for row in ranges] == [b"%d" % incarnation, b"0"]
        rows = await store.list(wal_stream(incarnation).prefix)
        assert [row.key for row in rows] == [key, key_of(incarnation, 1)]
        await store.delete(key)
        with pytest.raises(NotFoundError):
            await store.get(key)
    assert world.main.bucket.keys == ["meta/log/x", key_of(1, 1)]
    assert world.stores["a"].bucket.keys == [WAL_STORE_KEY, key_of(2, 1)]
    assert world.stores["b"].bucket.keys == [WAL_STORE_KEY, key_of(3, 1)]


@in_simulation
async def test_a_listing_of_all_streams_has_those_of_all_stores_that_answer() -> None:
    world = World()
    await world.learn(9, {2: "a", 3: "b"})
    for incarnation in (1, 2, 3):
        await world.store.create(key_of(incarnation), b"x")
    await world.store.create("topics/t", b"x")
    for prefix in ("wal/", "wal/0", "wal"):
        rows = await world.store.list(prefix)
        assert [row.key for row in rows] == [key_of(1), key_of(2), key_of(3)]
    rows = await world.store.list("")
    assert [row.key for row in rows] == ["topics/t", key_of(1), key_of(2), key_of(3)]
    rows = await world.store.list("wal/", after=key_of(2))
    assert [row.key for row in rows] == [key_of(3)]

    world.stores["a"].when("list", lambda _: True, _down, times=None)
    assert [row.key for row in await world.store.list("wal/")] == [key_of(1), key_of(3)]
    # A stream that no process needs any more is found where it was listed.
    world.places.learn(CLUSTER, 10, {})
    await world.store.list("wal/")
    await world.store.delete(key_of(3))
    assert world.stores["b"].bucket.keys == [WAL_STORE_KEY]


async def _down(call: object, work: object) -> None:
    del call, work
    raise UnavailableError("k", "it is down")


@in_simulation
async def test_a_store_that_another_cluster_uses_is_not_listed() -> None:
    world = World()
    await create_identity(world.stores["a"], "another", "a")
    await world.stores["a"].create(key_of(1), b"x")
    await world.learn(9, {3: "b"})
    assert await world.store.list("wal/") == []


@in_simulation
async def test_a_stream_that_is_not_known_yet_is_refused() -> None:
    world = World()
    with pytest.raises(InvalidError, match="stream 3 was registered above number 0"):
        await world.store.get(key_of(3))
    await world.learn(4, {3: "a"})
    await world.store.create(key_of(3), b"x")
    world.places.learn(CLUSTER, 2, {})  # an older view changes nothing
    assert bytes(await world.store.get(key_of(3))) == b"x"
    with pytest.raises(InvalidError, match="stream 4 was registered above number 4"):
        await world.store.list(wal_stream(4).prefix)


@in_simulation
async def test_a_store_that_the_settings_do_not_name_is_an_error_that_says_so() -> None:
    world = World()
    await world.learn(4, {3: "a"})
    ref = WalStoreRef(name="c", url="s3://fast", store_id="1")
    world.places.learn(CLUSTER, 5, {3: ref})
    with pytest.raises(
        InvalidError, match=r"WAL store 'c' \(s3://fast\), which wal.store does not"
    ):
        await world.store.get(key_of(3))


@in_simulation
async def test_a_store_without_the_right_identity_is_refused() -> None:
    world = World()
    await world.learn(4, {3: "a"})
    ref = WalStoreRef(name="a", url="", store_id="another")
    world.places.learn(CLUSTER, 5, {3: ref})
    with pytest.raises(StoreFailedError, match="memory://a is not the store in which stream 3"):
        await world.store.create(key_of(3), b"x")
    # The store `b` is empty: it has no identity at all.
    world.places.learn(CLUSTER, 6, {3: WalStoreRef(name="b", url="", store_id="1")})
    with pytest.raises(StoreFailedError, match="memory://b is not the store"):
        await world.store.get(key_of(3))


@pytest.mark.parametrize("is_already_sealing", [False, True])
def test_a_store_that_was_emptied_after_its_first_use_is_not_sealed(
    is_already_sealing: bool,
) -> None:
    async def scenario() -> None:
        world = World()
        await world.learn(4, {3: "a"})
        await world.store.create(key_of(3), b"x")
        store = world.stores["a"]

        def empty() -> None:
            store.bucket.objects.clear()
            store.bucket.keys.clear()

        async def emptied(_: object, work: Callable[[], Awaitable[object]]) -> object:
            empty()
            return await work()

        if is_already_sealing:
            store.when("list", wal_stream(3).prefix, emptied)
        else:
            empty()
        with pytest.raises(StoreFailedError, match="memory://a is not the store in which stream 3"):
            await Sealer(world.store, 3, window=2).seal()
        assert not store.bucket.keys
        # Now it is known, so that nobody reads there either.
        with pytest.raises(StoreFailedError, match="memory://a is not the store in which stream 3"):
            await world.store.get(key_of(3))

    runtime.simulate(scenario(), seed=1)


@in_simulation
async def test_the_identity_is_read_once_and_an_outage_names_the_store() -> None:
    world = World()
    await world.learn(4, {3: "a"})
    a = world.stores["a"]
    asked = a.asked("get", WAL_STORE_KEY)
    a.when("get", WAL_STORE_KEY, _down)
    with pytest.raises(WalStoreUnavailableError, match=r"WAL store 'a' \(memory://a\): it is down"):
        await world.store.create(key_of(3), b"x")
    await world.store.create(key_of(3), b"x")
    a.when("get", key_of(3), _down)
    with pytest.raises(WalStoreUnavailableError, match="WAL store 'a'"):
        await world.store.get(key_of(3))
    assert bytes(await world.store.get(key_of(3))) == b"x"
    assert a.asked("get", WAL_STORE_KEY) == asked + 2


@in_simulation
async def test_a_store_keeps_its_first_identity() -> None:
    store = MemoryStore()
    first = await create_identity(store, CLUSTER, "a")
    assert first is not None
    assert first.cluster_id == CLUSTER
    assert await create_identity(store, CLUSTER, "b") == first
    assert await read_identity(store) == first
    assert await read_identity(MemoryStore()) is None


def test_the_places_are_found_through_wrappers() -> None:
    world = World()
    assert places_of(Wrapper(Wrapper(world.store))) is world.places
    assert places_of(Wrapper(MemoryStore())) is None


def test_a_bucket_is_opened_with_its_wal_stores() -> None:
    flags = {"wal.store": "a=memory://one,b=memory://two", "broker.rack": "b"}
    stack = connect_bucket("memory://main", load(flags=flags), writes=True)
    places = places_of(stack.store)
    assert places is not None
    assert places is places_of(stack.prefetch)
    assert {name: row.url for name, row in places.named.items()} == {
        "a": "memory://one",
        "b": "memory://two",
    }
    assert places.own == "b"
    reader = places_of(connect_bucket("memory://main", load(flags=flags)).store)
    assert reader is not None
    assert reader.own is None
    assert own_store_url("memory://main", load(flags=flags)) == "memory://two"
    assert own_store_url("memory://main", load()) == "memory://main"


@pytest.mark.parametrize("url", ["./x", "x", "file://./x"])
def test_the_bucket_itself_is_no_wal_store(url: str) -> None:
    with pytest.raises(InvalidError, match="'wal' is the bucket itself"):
        connect_bucket("./x", load(flags={"wal.store": url}))
    connect_bucket("memory://", load(flags={"wal.store": "memory://"}))
