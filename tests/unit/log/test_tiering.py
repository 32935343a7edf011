"""Writing one segment: base before upload, doomed or hidden keys, others who were faster."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import ConflictError, UnavailableError
from neve.log import tiering
from neve.log.keys import manifest as manifest_keys
from neve.log.keys import segment_name, segment_prefix
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Doom
from neve.log.manifest.state import ManifestState
from neve.log.segment import kfs
from neve.log.segment.bundle import decode_bundle
from neve.log.segment.history import History
from neve.log.tiering import SegmentWriter
from neve.records.batch import patch
from neve.settings import SegmentSettings
from neve.store.port import Buffer
from support.node_world import batch_of
from support.scripted_store import Call, ScriptedStore, first, in_simulation, refuse

TOPIC_ID = bytes(16)
KEYS = manifest_keys("t", TOPIC_ID, 0)
PREFIX = segment_prefix("t", TOPIC_ID, 0)


def writer(store: ScriptedStore, manifest: Manifest | None = None) -> SegmentWriter:
    manifest = manifest or Manifest(store, KEYS)
    return SegmentWriter(store, manifest, PREFIX, 7, SegmentSettings(index_interval=1))


def batches(base: int, count: int = 2, *, epoch: int = 0) -> list[Buffer]:
    """So many batches of two records each."""
    made: list[Buffer] = []
    for at in range(count):
        offset = base + 2 * at
        batch = batch_of([f"{offset}", f"{offset + 1}"], producer_id=offset, sequence=0)
        patch(batch, offset, epoch)
        made.append(batch)
    return made


def history() -> History:
    return History("t-0")


async def state_of(store: ScriptedStore) -> ManifestState:
    return await Manifest(store, KEYS).refresh()


def is_segment(key: str) -> bool:
    return key.endswith(".kfs")


async def doom_everything(store: ScriptedStore) -> None:
    other = Manifest(store, KEYS)
    await other.doom(store.listed(PREFIX))
    await other.collect()


@in_simulation
async def test_a_segment_and_its_bundle_are_listed_with_all_that_planning_needs() -> None:
    store = ScriptedStore()
    made = await writer(store).write(batches(0, 3, epoch=4), history())
    assert made is not None
    row = made.segment
    state = await state_of(store)
    assert state.loose == (row,)
    assert (state.next, row.base, row.last, row.records, row.epoch) == (6, 0, 5, 6, 4)
    data = store.data(row.key)
    checked = kfs.check(data, row.key)
    assert (row.bytes, row.crc, row.max_timestamp) == (len(data), checked.facts.body_crc, 1_000)
    assert row.index_key is not None
    bundle = decode_bundle(store.data(row.index_key), row.index_key, row.bytes)
    assert row.index_bytes == len(store.data(row.index_key))
    assert [entry.producer_id for entry in bundle.producers or ()] == [0, 2, 4]
    name = segment_name(row.key)
    assert name is not None
    assert (name.base_offset, name.incarnation) == (0, 7)


@in_simulation
async def test_the_manifest_is_read_before_the_first_upload() -> None:
    store = ScriptedStore()
    await writer(store).write(batches(0), history())
    order = [
        "manifest" if call.key.startswith(KEYS.prefix) else "upload"
        for call in store.calls
        if call.key.startswith("topics/")
    ]
    assert order[0] == "manifest"
    assert order.index("upload") > 0
    assert order[-1] == "manifest"
    assert order.count("upload") == 2


@in_simulation
async def test_histories_continue_from_segment_to_segment() -> None:
    store = ScriptedStore()
    one = await writer(store).write(batches(0), history())
    assert one is not None
    two = await writer(store).write(batches(4), one.history, tiered=4)
    assert two is not None
    assert [row.producer_id for row in two.history.producers.entries()] == [0, 2, 4, 6]
    assert [row.producer_id for row in one.history.producers.entries()] == [0, 2]


@in_simulation
async def test_what_others_tiered_already_is_not_uploaded() -> None:
    store = ScriptedStore()
    await writer(store).write(batches(0), history())
    before = store.listed(PREFIX)
    assert await writer(store).write(batches(0), history()) is None
    assert store.listed(PREFIX) == before


@in_simulation
async def test_a_manifest_that_moved_on_since_the_history_is_not_written_to() -> None:
    store = ScriptedStore()
    await writer(store).write(batches(0), history())
    assert await writer(store).write(batches(4), history(), tiered=0) is None
    assert (await state_of(store)).next == 4


@in_simulation
async def test_of_two_that_tier_the_same_offsets_one_wins() -> None:
    store = ScriptedStore()
    told = await runtime.gather(
        *(writer(store).write(batches(0, count), history()) for count in (1, 2, 3))
    )
    won = [made for made in told if made is not None]
    assert len(won) == 1
    assert (await state_of(store)).loose == (won[0].segment,)


@in_simulation
async def test_a_pair_doomed_before_it_is_listed_is_abandoned_for_new_keys() -> None:
    store = ScriptedStore()

    async def doom() -> None:
        store.scripts.clear()
        await doom_everything(store)

    store.when("create", KEYS.number(0), first(doom))
    made = await writer(store).write(batches(0), history())
    assert made is not None
    uploaded = [
        call.key for call in store.calls if call.operation == "create" and is_segment(call.key)
    ]
    assert len(uploaded) == 2
    assert made.segment.key == uploaded[1]
    assert [key for key in store.listed(PREFIX) if is_segment(key)] == [uploaded[1]]
    assert kfs.check(store.data(made.segment.key), "k").facts.last_offset == 3


@in_simulation
async def test_a_base_that_a_checkpoint_passed_is_given_up() -> None:
    """The doom is behind the checkpoint, where the committer cannot see it."""
    store = ScriptedStore()

    async def hide() -> None:
        store.scripts.clear()
        await doom_everything(store)
        other = Manifest(store, KEYS)
        await other.refresh()
        assert await other.checkpoint(1)

    store.when("create", KEYS.number(0), first(hide))
    made = await writer(store).write(batches(0), history())
    assert made is not None
    listed = (await state_of(store)).loose
    assert [row.key in store.listed() for row in listed] == [True]


@in_simulation
async def test_nothing_is_ever_deleted_here() -> None:
    store = ScriptedStore()
    store.when("create", is_segment, refuse(ConflictError), times=2)
    assert await writer(store).write(batches(0), history()) is not None
    assert store.asked("delete") == 0


@in_simulation
async def test_a_manifest_that_dooms_every_pair_is_given_up_after_some_attempts() -> None:
    store = ScriptedStore()

    async def doomed(call: Call, work: object) -> object:
        other = Manifest(store, KEYS)
        await other.change(lambda _: [Doom((call.key,))])
        return await work()  # type: ignore[operator]

    store.when("create", is_segment, doomed, times=None)
    with pytest.raises(UnavailableError, match="changes faster"):
        await writer(store).write(batches(0), history())
    assert len([key for key in store.listed(PREFIX) if is_segment(key)]) == tiering.ATTEMPTS_MAX
    assert (await state_of(store)).loose == ()


@in_simulation
async def test_a_commit_whose_answer_was_lost_is_known_as_ours() -> None:
    store = ScriptedStore()
    store.when("create", KEYS.number(0), refuse(UnavailableError, after=True))
    made = await writer(store).write(batches(0), history())
    assert made is not None
    assert (await state_of(store)).loose == (made.segment,)


@in_simulation
async def test_a_failed_upload_lists_nothing() -> None:
    store = ScriptedStore()
    store.when("create", is_segment, refuse(UnavailableError), times=None)
    with pytest.raises(UnavailableError):
        await writer(store).write(batches(0), history())
    assert (await state_of(store)).loose == ()
    store.scripts.clear()
    assert await writer(store).write(batches(0), history()) is not None
