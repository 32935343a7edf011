"""The port to tiered segments: what a plug-in inherits, and the bucket behind it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from neve import runtime
from neve.errors import (
    DamagedError,
    DeniedError,
    NeveError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from neve.log import keys
from neve.log.manifest.records import Segment
from neve.log.remote import (
    BucketRemoteStorage,
    IndexAbsentError,
    RemoteStorage,
    bare_bundle,
    encode_indexes,
)
from neve.log.segment import kfs
from neve.log.segment.bundle import decode_bundle
from neve.log.segment.sections import Section
from support import format_samples as samples
from support.slow_store import SlowStore

PREFIX = keys.segment_prefix("orders", b"\1" * 16, 3)
SEGMENT_DATA, INDEX_DATA = samples.pair()
FOREIGN_INDEX = samples.foreign_index(SEGMENT_DATA)


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        runtime.simulate(test(), seed=1)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def listed(key: str, index_key: str | None, *, owned: bool = True) -> Segment:
    return Segment(
        key=key,
        base=100,
        last=108,
        bytes=len(SEGMENT_DATA),
        records=9,
        min_timestamp=900,
        max_timestamp=5105,
        created_ms=77,
        epoch=4,
        crc=0,
        index_key=index_key,
        index_bytes=len(INDEX_DATA),
        owned=owned,
    )


OWN = listed(
    f"{PREFIX}segment-{100:020d}-{5:020d}-{'ab' * 8}.kfs",
    f"{PREFIX}segment-{100:020d}-{5:020d}-{'cd' * 8}.index",
)
KAFSCALE = listed(
    f"ns/orders/3/segment-{100:020d}.kfs", f"ns/orders/3/segment-{100:020d}.index", owned=False
)
UNINDEXED = listed(f"ns/orders/3/segment-{100:020d}.kfs", None, owned=False)


def store_with(segment: Segment, index: bytes = INDEX_DATA) -> SlowStore:
    objects = {segment.key: SEGMENT_DATA}
    if segment.index_key is not None:
        objects[segment.index_key] = index
    return SlowStore(objects)


class OnlyFetchIndex(RemoteStorage):
    """The least that a plug-in may be."""

    def __init__(self, **failures: Exception) -> None:
        self.failures = failures
        self.asked: list[Section] = []

    async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
        self.asked.append(kind)
        if kind.name in self.failures:
            raise self.failures[kind.name]
        return memoryview(kind.name.encode())


# --- what a plug-in inherits ---


@simulated
async def test_a_plug_in_with_only_fetch_index_inherits_the_rest() -> None:
    plug_in = OnlyFetchIndex(TRANSACTION=IndexAbsentError(OWN, Section.TRANSACTION))
    every = await plug_in.fetch_all_indexes(OWN)
    assert list(every) == [kind for kind in Section if kind is not Section.TRANSACTION]
    assert bytes(every[Section.TIMESTAMP]) == b"TIMESTAMP"
    assert plug_in.asked == list(Section)
    some = await plug_in.fetch_indexes(OWN, [Section.OFFSET, Section.TRANSACTION])
    assert list(some) == [Section.OFFSET]


@pytest.mark.parametrize(
    "failure",
    [
        NotFoundError("index", "gone"),
        UnavailableError("index", "503"),
        DeniedError("index", "403"),
        DamagedError("index", "its checksum does not match"),
        UnsupportedError("a newer Neve wrote it"),
        ValueError("a bug"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_only_an_absent_kind_is_swallowed_by_the_default_loop(failure: Exception) -> None:
    plug_in = OnlyFetchIndex(
        TIMESTAMP=IndexAbsentError(OWN, Section.TIMESTAMP), TRANSACTION=failure
    )
    with pytest.raises(type(failure)) as raised:
        runtime.simulate(plug_in.fetch_all_indexes(OWN), seed=1)
    assert raised.value is failure


# --- the bucket ---


@simulated
async def test_all_indexes_of_a_segment_are_one_request() -> None:
    store = store_with(OWN)
    every = await BucketRemoteStorage(store).fetch_all_indexes(OWN)
    assert store.calls == [("get", OWN.index_key)]
    bundle = decode_bundle(INDEX_DATA, "k", len(SEGMENT_DATA))
    assert {kind: bytes(data) for kind, data in every.items()} == {
        kind: bytes(bundle.section(kind) or b"") for kind in bundle.kinds
    }
    assert set(every) == set(Section)


@simulated
async def test_some_indexes_are_one_request_too() -> None:
    store = store_with(OWN)
    remote = BucketRemoteStorage(store)
    some = await remote.fetch_indexes(OWN, [Section.TIMESTAMP, Section.LEADER_EPOCH])
    assert list(some) == [Section.TIMESTAMP, Section.LEADER_EPOCH]
    assert store.count("get") == 1
    state = await remote.fetch_index(OWN, Section.STATE)
    assert b"state" in bytes(state)


@simulated
async def test_an_absent_kind_is_left_out_or_named() -> None:
    _, without_state = samples.pair(state=None)
    remote = BucketRemoteStorage(store_with(OWN, without_state))
    assert Section.STATE not in await remote.fetch_all_indexes(OWN)
    with pytest.raises(IndexAbsentError, match=r"\.kfs has no STATE index"):
        await remote.fetch_index(OWN, Section.STATE)


@simulated
async def test_kafscale_s_own_index_has_offsets_only() -> None:
    remote = BucketRemoteStorage(store_with(KAFSCALE, FOREIGN_INDEX))
    every = await remote.fetch_all_indexes(KAFSCALE)
    assert {kind: bytes(data) for kind, data in every.items()} == {Section.OFFSET: FOREIGN_INDEX}
    with pytest.raises(IndexAbsentError):
        await remote.fetch_index(KAFSCALE, Section.TIMESTAMP)


@simulated
async def test_a_bundle_of_our_own_without_its_sections_is_damaged_not_foreign() -> None:
    remote = BucketRemoteStorage(store_with(OWN, FOREIGN_INDEX))
    with pytest.raises(DamagedError, match=r"cdcd\.index is damaged"):
        await remote.fetch_all_indexes(OWN)


@simulated
async def test_a_segment_without_an_index_has_one_stretch_and_costs_no_request() -> None:
    store = store_with(UNINDEXED)
    remote = BucketRemoteStorage(store)
    assert list(await remote.fetch_all_indexes(UNINDEXED)) == [Section.OFFSET]
    assert store.calls == []
    bundle = bare_bundle(UNINDEXED)
    (stretch,) = bundle.stretches(0, kfs.OFFSET_MAX)
    data = await store.get_range(UNINDEXED.key, stretch.start, stretch.end)
    assert bytes(bundle.verify_range([stretch], data, UNINDEXED.key)) == b"".join(
        samples.segment_batches()
    )
    with pytest.raises(DamagedError):
        bundle.verify_range([stretch], bytes(data[:-1]) + b"\xff", UNINDEXED.key)


@simulated
async def test_a_torn_read_of_a_bundle_is_read_again_and_damage_is_raised() -> None:
    store = store_with(OWN)
    remote = BucketRemoteStorage(store)
    assert OWN.index_key is not None
    store.faults[OWN.index_key].append(lambda data: data[: len(data) // 2])
    assert len(await remote.fetch_all_indexes(OWN)) == len(Section)
    assert store.count("get") == 2
    for position in range(len(INDEX_DATA)):
        flipped = bytearray(INDEX_DATA)
        flipped[position] ^= 0x40
        store.objects[OWN.index_key] = bytes(flipped)
        with pytest.raises(NeveError, match=OWN.index_key):
            await remote.fetch_all_indexes(OWN)


@simulated
async def test_a_missing_bundle_is_raised_by_name() -> None:
    store = store_with(OWN)
    assert OWN.index_key is not None
    del store.objects[OWN.index_key]
    with pytest.raises(NotFoundError, match=OWN.index_key):
        await BucketRemoteStorage(store).fetch_all_indexes(OWN)


def test_fetched_indexes_make_the_same_bundle_again() -> None:
    bundle = decode_bundle(INDEX_DATA, "k", len(SEGMENT_DATA))
    sections = {kind: bundle.section(kind) or b"" for kind in bundle.kinds}
    assert encode_indexes(OWN, sections) == INDEX_DATA
    assert encode_indexes(OWN, {Section.OFFSET: FOREIGN_INDEX}) == FOREIGN_INDEX
    with pytest.raises(IndexAbsentError, match="has no OFFSET index"):
        encode_indexes(OWN, {Section.STATE: b"state"})
