"""The heartbeat object: written over, read without ever failing for damage, deleted when over."""

from __future__ import annotations

import msgspec
import pytest

from neve.cluster.liveness.heartbeat import (
    HEARTBEAT_BYTES_MAX,
    Heartbeat,
    delete_heartbeats,
    read_heartbeat,
    write_heartbeat,
)
from neve.cluster.log import ClusterLog
from neve.errors import UnavailableError, UnsupportedError
from neve.log.envelope import Kind, seal_envelope
from neve.log.keys import HEARTBEAT_PREFIX, cluster_log, heartbeat_key
from support.scripted_store import ScriptedStore, refuse, then

AUTHOR = b"a" * 16


async def test_each_heartbeat_replaces_the_one_before(store: ScriptedStore) -> None:
    for count in (1, 2, 3, 2**63 - 1):
        await write_heartbeat(store, 7, count)
        assert await read_heartbeat(store, 7) == count
    assert store.listed() == ["meta/heartbeat/00000000000000000007"]
    assert {call.operation for call in store.calls} == {"put", "get"}


async def test_without_a_heartbeat_there_is_nothing_to_read(store: ScriptedStore) -> None:
    await write_heartbeat(store, 7, 1)
    assert await read_heartbeat(store, 8) is None


async def test_heartbeats_of_two_processes_are_separate(store: ScriptedStore) -> None:
    await write_heartbeat(store, 7, 1)
    await write_heartbeat(store, 8, 5)
    assert [await read_heartbeat(store, each) for each in (7, 8)] == [1, 5]


async def test_a_heartbeat_under_the_key_of_another_process_is_nothing(
    store: ScriptedStore,
) -> None:
    await write_heartbeat(store, 7, 1)
    store.bucket.write(heartbeat_key(8), store.data(heartbeat_key(7)))
    assert await read_heartbeat(store, 8) is None


async def test_any_damage_is_nothing_new(store: ScriptedStore) -> None:
    await write_heartbeat(store, 7, 5)
    key = heartbeat_key(7)
    whole = bytes(store.data(key))
    assert len(whole) < HEARTBEAT_BYTES_MAX
    for at in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            store.bucket.write(key, bytes(flipped))
            assert await read_heartbeat(store, 7) is None
        store.bucket.write(key, whole[:at])
        assert await read_heartbeat(store, 7) is None
    for extra in (b"\0", b"x" * HEARTBEAT_BYTES_MAX):
        store.bucket.write(key, whole + extra)
        assert await read_heartbeat(store, 7) is None


@pytest.mark.parametrize("payload", [[], {}, {"count": "1"}, {"count": 1, "more": 1}, None])
async def test_what_a_newer_version_may_have_written_is_not_silence(
    store: ScriptedStore, payload: object
) -> None:
    data = seal_envelope(Kind.HEARTBEAT, HEARTBEAT_PREFIX, 7, AUTHOR, payload)
    store.bucket.write(heartbeat_key(7), data)
    with pytest.raises(UnsupportedError):
        await read_heartbeat(store, 7)


async def test_another_kind_of_object_is_nothing(store: ScriptedStore) -> None:
    data = seal_envelope(Kind.CLUSTER_RECORD, HEARTBEAT_PREFIX, 7, AUTHOR, Heartbeat(1))
    store.bucket.write(heartbeat_key(7), data)
    assert await read_heartbeat(store, 7) is None


async def test_a_failure_of_the_store_is_raised(store: ScriptedStore) -> None:
    store.when("get", heartbeat_key(7), refuse(UnavailableError))
    with pytest.raises(UnavailableError):
        await read_heartbeat(store, 7)


def test_the_payload_is_what_the_page_says() -> None:
    assert msgspec.json.encode(Heartbeat(3)) == b'{"count":3}'


# -- deletion ------------------------------------------------------------------------------------


async def registered(store: ScriptedStore, *nodes: int) -> tuple[ClusterLog, list[int]]:
    """Processes of these nodes, each registered with a view of its own."""
    await ClusterLog(store).init()
    incarnations = [await ClusterLog(store).register(node, inflight=1) for node in nodes]
    cluster = ClusterLog(store)
    await cluster.refresh()
    return cluster, incarnations


async def test_heartbeats_of_processes_that_have_ended_are_deleted(store: ScriptedStore) -> None:
    cluster, (first, second, third) = await registered(store, 1, 2, 2)
    for each in (first, second, third):
        await write_heartbeat(store, each, 1)
    assert await delete_heartbeats(store, cluster) == 1
    assert store.listed(HEARTBEAT_PREFIX) == [heartbeat_key(first), heartbeat_key(third)]
    await cluster.expire(first)
    assert await delete_heartbeats(store, cluster) == 1
    assert store.listed(HEARTBEAT_PREFIX) == [heartbeat_key(third)]


async def test_a_process_that_registers_meanwhile_keeps_its_heartbeat(
    store: ScriptedStore,
) -> None:
    """Its registration is read after the listing; the view from before does not know it."""
    cluster, (first,) = await registered(store, 1)
    late: list[int] = []

    async def register() -> None:
        late.append(await ClusterLog(store).register(2, inflight=1))
        await write_heartbeat(store, late[0], 1)

    await write_heartbeat(store, first, 1)
    store.when("list", HEARTBEAT_PREFIX, then(register))
    assert await delete_heartbeats(store, cluster) == 0
    await write_heartbeat(store, late[0], 2)
    stale = ClusterLog(store)
    assert await delete_heartbeats(store, stale) == 0
    assert await read_heartbeat(store, late[0]) == 2


async def test_keys_that_are_not_of_a_known_process_are_left_alone(store: ScriptedStore) -> None:
    cluster, _ = await registered(store, 1)
    strange = [heartbeat_key(99), f"{HEARTBEAT_PREFIX}7", f"{HEARTBEAT_PREFIX}{'0' * 20}/x"]
    for key in strange:
        store.bucket.write(key, b"?")
    assert await delete_heartbeats(store, cluster) == 0
    assert store.listed(HEARTBEAT_PREFIX) == sorted(strange)


async def test_without_heartbeats_the_cluster_log_is_not_read(store: ScriptedStore) -> None:
    cluster, _ = await registered(store, 1)
    before = len(store.calls)
    assert await delete_heartbeats(store, cluster) == 0
    assert [call.operation for call in store.calls[before:]] == ["list"]
    assert cluster_log().number(0) in store.listed()
