"""Lost and damaged bundles: rebuilt, listed under new keys, never a reason to fail a partition."""

from __future__ import annotations

import msgspec
import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import DamagedError, NotFoundError, UnavailableError, UnsupportedError
from neve.log.keys import manifest as manifest_keys
from neve.log.keys import partition_of
from neve.log.log_start import move_start
from neve.log.manifest import manifest as manifest_module
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Add, Replace, Segment, removal
from neve.log.remote import load_bundle
from neve.log.restore import load_history, restore_bundle
from neve.log.segment.bundle import decode_bundle
from neve.log.segment.history import History
from neve.log.segment.sections import Section
from support.node_world import TOPIC, send, small_settings, started, successor, take_over, values_of
from support.scripted_store import Call, ScriptedStore, Work, changed, first, in_simulation, refuse

SEGMENTS = 4


async def tiered(store: ScriptedStore) -> Node:
    """A node whose partition has one segment for each of four producers."""
    node = await started(store, small_settings(segment_bytes=1 << 20))
    for at in range(SEGMENTS):
        await send(node, [f"{at}"], producer_id=at, sequence=10 * at)
        assert await node.leader(TOPIC, 0).log.tier()
    return node


async def opened(store: ScriptedStore, node: Node) -> Manifest:
    manifest = Manifest(store, node.leader(TOPIC, 0).log.manifest.keys)
    await manifest.refresh()
    return manifest


def sequences(history: History) -> dict[int, int]:
    return {row.producer_id: row.last_sequence for row in history.producers.entries()}


ALL = {at: 10 * at for at in range(SEGMENTS)}


def with_bad_producers(data: bytes) -> bytes:
    """One bit off in a section that is only looked at when somebody asks for it."""
    place = decode_bundle(data, "bundle")._places[Section.PRODUCER_SNAPSHOT]
    changed = bytearray(data)
    changed[place.position + place.length - 1] ^= 1
    return bytes(changed)


async def lose(store: ScriptedStore, segment: Segment, how: str) -> None:
    assert segment.index_key is not None
    if how == "missing":
        await store.delete(segment.index_key)
        return
    data = bytearray(store.data(segment.index_key))
    if how == "cut":
        del data[len(data) // 2 :]
    elif how == "header":
        data[0] ^= 1
    else:
        data = bytearray(with_bad_producers(bytes(data)))
    await store.put(segment.index_key, bytes(data))


# --- recovery goes on whatever is lost


@pytest.mark.parametrize("how", ["missing", "cut", "header", "section"])
@pytest.mark.parametrize("lost", [[3], [2, 3], [0, 1, 2, 3], [0], [1, 3]], ids=str)
def test_a_successor_has_the_whole_history_whatever_bundle_is_lost(
    how: str, lost: list[int]
) -> None:
    async def main() -> None:
        store = ScriptedStore()
        node = await tiered(store)
        segments = await node.leader(TOPIC, 0).log.manifest.segments()
        await node.abort()
        for at in lost:
            await lose(store, segments[at], how)
        new = await successor(store)
        log = new.leader(TOPIC, 0).log
        assert sequences(log.tiered_history) == ALL
        assert [row.epoch for row in log.tiered_history.epochs.starts] == [0]
        listed = await log.manifest.segments()
        for at in range(SEGMENTS):
            rebuilt = at in lost and all(later in lost for later in range(at, SEGMENTS))
            assert (listed[at].index_key != segments[at].index_key) == rebuilt
            if rebuilt:
                assert segments[at].index_key in log.manifest.state.doomed
                bundle = await load_bundle(store, listed[at])
                bundle.check_all()
                assert len(bundle.producers or ()) == at + 1
        await new.collect()
        assert await values_of(store) == ["0", "1", "2", "3"]
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_bundle_in_a_run_is_rebuilt_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "RUN_SEGMENTS_MAX", 2)
    monkeypatch.setattr(manifest_module.Manifest.gather_runs, "__defaults__", (2,))
    store = ScriptedStore()
    node = await tiered(store)
    manifest = node.leader(TOPIC, 0).log.manifest
    assert len(manifest.state.runs) == 2
    segments = await manifest.segments()
    await node.abort()
    for row in segments:
        await lose(store, row, "missing")
    new = await successor(store)
    manifest = new.leader(TOPIC, 0).log.manifest
    assert sequences(new.leader(TOPIC, 0).log.tiered_history) == ALL
    assert len(manifest.state.reindexed) == 4
    for row in await manifest.segments():
        assert (await load_bundle(store, row)).last_offset == row.last
    await new.abort()


@in_simulation
async def test_a_torn_read_is_not_taken_for_damage() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    segments = await node.leader(TOPIC, 0).log.manifest.segments()
    key = segments[-1].index_key
    assert key is not None

    store.when("get", key, changed(with_bad_producers))
    manifest = await opened(store, node)
    assert sequences((await load_history(store, manifest, "t-0"))[0]) == ALL
    assert (await manifest.segments())[-1].index_key == key
    await node.abort()


@in_simulation
async def test_a_bundle_from_the_future_is_not_replaced() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifest = await opened(store, node)
    segments = await manifest.segments()
    key = segments[-1].index_key
    assert key is not None

    async def newer(call: Call, _: Work) -> None:
        raise UnsupportedError(f"{call.key}: a newer Neve wrote it")

    store.when("get", key, newer, times=None)
    with pytest.raises(UnsupportedError):
        await load_history(store, manifest, "t-0")
    assert (await manifest.segments())[-1].index_key == key
    await node.abort()


@in_simulation
async def test_a_store_in_trouble_is_not_a_lost_bundle() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifest = await opened(store, node)
    before = await manifest.segments()
    store.when("get", f"{before[-1].index_key}", refuse(UnavailableError), times=None)
    with pytest.raises(UnavailableError):
        await load_history(store, manifest, "t-0")
    assert await manifest.segments() == before
    await node.abort()


# --- segments


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_where_the_segment_is_lost_as_well_it_is_named(damage: str) -> None:
    async def main() -> None:
        store = ScriptedStore()
        node = await tiered(store)
        manifest = await opened(store, node)
        last = (await manifest.segments())[-1]
        await lose(store, last, "missing")
        data = bytearray(store.data(last.key))
        if damage == "gone":
            await store.delete(last.key)
        elif damage == "cut":
            await store.put(last.key, bytes(data[:-7]))
        else:
            data[len(data) // 2] ^= 4
            await store.put(last.key, bytes(data))
        with pytest.raises(DamagedError) as raised:
            await load_history(store, manifest, "t-0")
        assert raised.value.key == last.key
        await node.abort()
        new = await Node.start(store, small_settings(), node_id=2)
        with pytest.raises(DamagedError, match=last.key):
            await take_over(new)
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_damaged_segment_whose_bundle_is_whole_stops_no_successor() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    last = (await node.leader(TOPIC, 0).log.manifest.segments())[-1]
    await store.put(last.key, b"damaged")
    await node.abort()
    new = await successor(store)
    assert sequences(new.leader(TOPIC, 0).log.tiered_history) == ALL
    assert await send(new, ["4"]) == 4
    await new.abort()


@in_simulation
async def test_a_segment_that_expired_as_we_looked_is_not_damage() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifest = await opened(store, node)
    last = (await manifest.segments())[-1]
    await lose(store, last, "missing")

    async def expire() -> None:
        store.scripts.clear()
        log = node.leader(TOPIC, 0).log
        await move_start(log.manifest, 3, end=4)
        rows = await log.manifest.segments()
        merged = msgspec.structs.replace(rows[0], key=f"{rows[0].key}.merged", index_key=None)
        await store.put(merged.key, store.data(rows[0].key))
        await log.manifest.change(lambda _: [Replace((removal(rows[0]),), (merged,))])
        await log.manifest.collect()

    store.when("get", last.key, first(expire))
    history, _ = await load_history(store, manifest, "t-0")
    assert sequences(history)[3] == 30
    await node.abort()


# --- what is kept of segments that are gone


@in_simulation
async def test_the_kept_bundle_counts_though_older_segments_are_listed() -> None:
    """Merging may leave nothing of the last segment: what its bundle knows is the newest."""
    store = ScriptedStore()
    node = await tiered(store)
    manifest = await opened(store, node)
    last = (await manifest.segments())[-1]
    await manifest.change(lambda _: [Replace((removal(last),), ())])
    assert manifest.state.state_bundle is not None
    assert len(await manifest.segments()) == 3
    assert sequences((await load_history(store, manifest, "t-0"))[0]) == ALL
    await node.abort()


@pytest.mark.parametrize("how", ["missing", "cut", "section"])
def test_a_kept_bundle_that_is_lost_fails_nobody(how: str) -> None:
    async def main() -> None:
        store = ScriptedStore()
        node = await tiered(store)
        manifest = node.leader(TOPIC, 0).log.manifest
        last = (await manifest.segments())[-1]
        await move_start(manifest, 4, end=4)
        await lose(store, last, how)
        await node.abort()
        new = await successor(store)
        assert sequences(new.leader(TOPIC, 0).log.tiered_history) == {}
        assert await send(new, ["4"]) == 4
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_kept_bundle_that_was_followed_by_a_segment_and_collected_loses_nothing() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=1 << 20))
    await send(node, ["a"], producer_id=7, sequence=0)
    log = node.leader(TOPIC, 0).log
    assert await log.tier()
    await node.leader(TOPIC, 0).move_start(1)
    kept = log.manifest.state.state_bundle
    assert kept is not None
    manifest = Manifest(store, log.manifest.keys)
    await manifest.refresh()

    async def move_on() -> None:
        await send(node, ["b"], producer_id=8, sequence=0)
        assert await log.tier()
        assert kept.key in await log.manifest.collect()

    store.when("get", kept.key, first(move_on))
    history, tiered = await load_history(store, manifest, "t-0")
    assert {row.producer_id for row in history.producers.entries()} == {7, 8}
    assert tiered == 2
    await node.close()


@in_simulation
async def test_a_torn_read_of_the_kept_bundle_loses_nothing() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    await move_start(node.leader(TOPIC, 0).log.manifest, 4, end=4)
    manifest = await opened(store, node)
    kept = manifest.state.state_bundle
    assert kept is not None
    store.when("get", kept.key, changed(with_bad_producers))
    assert sequences((await load_history(store, manifest, "t-0"))[0]) == ALL
    await node.abort()


# --- restoring one


async def imported(store: ScriptedStore, node: Node, *, index: bool) -> tuple[Manifest, Segment]:
    """A foreign segment, listed in place behind the partition's own."""
    source = (await node.leader(TOPIC, 0).log.manifest.segments())[0]
    folder = "kafscale/t/0/"
    key = f"{folder}segment-{0:020d}.kfs"
    await store.put(key, store.data(source.key))
    index_key = f"{folder}segment-{0:020d}.index" if index else None
    if index_key is not None:
        await store.put(index_key, b"damaged")
    manifest = Manifest(store, manifest_keys("imported", bytes(range(16)), 3))
    row = msgspec.structs.replace(source, key=key, index_key=index_key, index_bytes=0, owned=False)
    await manifest.change(lambda _: [Add((row,))])
    return manifest, row


@pytest.mark.parametrize("index", [False, True])
def test_a_foreign_index_is_replaced_and_left_where_it_is(index: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        node = await tiered(store)
        manifest, row = await imported(store, node, index=index)
        history, _ = await load_history(store, manifest, "imported-3")
        assert sequences(history) == {0: 0}
        (now,) = await manifest.segments()
        assert now.index_key is not None
        assert now.index_key != row.index_key
        partition = partition_of(now.index_key)
        assert partition is not None, "in the partition's own folder, not in the foreign one"
        assert (partition.topic_shown, partition.partition) == ("imported", 3)
        assert manifest.state.doomed == ()
        await manifest.collect()
        if index:
            assert row.index_key in store.listed()
        assert (await load_bundle(store, now)).checksummed
        await node.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_of_two_that_restore_one_bundle_is_listed() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifests = [await opened(store, node) for _ in range(3)]
    last = (await manifests[0].segments())[-1]
    await lose(store, last, "missing")
    histories = await runtime.gather(
        *(load_history(store, manifest, "t-0") for manifest in manifests)
    )
    assert [sequences(history) for history, _ in histories] == [ALL] * 3
    fresh = await opened(store, node)
    now = (await fresh.segments())[-1]
    assert now.index_key in store.listed()
    assert fresh.state.doomed == (last.index_key,)
    await node.abort()


@in_simulation
async def test_a_rebuilt_bundle_that_was_doomed_is_uploaded_again() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifest = await opened(store, node)
    last = (await manifest.segments())[-1]
    await lose(store, last, "missing")
    number = manifest.keys.number(manifest.view.position)

    async def doom() -> None:
        store.scripts.clear()
        other = await opened(store, node)
        await other.doom([row for row in store.listed("topics/") if row.endswith(".index")])
        await other.collect()

    store.when("create", number, first(doom))
    assert sequences((await load_history(store, manifest, "t-0"))[0]) == ALL
    now = (await manifest.segments())[-1]
    assert now.index_key in store.listed()
    await node.abort()


@in_simulation
async def test_a_segment_without_an_index_key_says_so() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    _, row = await imported(store, node, index=False)
    with pytest.raises(NotFoundError, match="no index"):
        await load_bundle(store, row)
    await node.abort()


@in_simulation
async def test_a_manifest_that_dooms_every_bundle_is_given_up_after_some_attempts() -> None:
    store = ScriptedStore()
    node = await tiered(store)
    manifest = await opened(store, node)
    last = (await manifest.segments())[-1]

    async def doom(call: Call, work: Work) -> object:
        other = await opened(store, node)
        result = await work()
        await other.doom([call.key])
        return result

    store.when("create", lambda key: key.endswith(".index"), doom, times=None)
    with pytest.raises(UnavailableError, match="faster"):
        await restore_bundle(store, manifest, last, History("t-0"))
    await node.abort()
