"""Starting a process whose stream lies in a WAL store, and giving such a store up."""

from __future__ import annotations

import pytest

from neve.bucket.abandon import abandon_wal
from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.records import Init
from neve.cluster.streams import retire_streams
from neve.errors import InvalidError, UnsupportedError
from neve.log.keys import WAL_STORE_KEY
from neve.log.wal.store_identity import create_identity
from neve.log.wal.stores import NamedStore, StreamPlaces, StreamStores
from neve.store.memory import MemoryBucket, MemoryStore
from simulation.process import declare_others_dead
from support.node_world import send, small_settings, started, take_over
from support.scripted_store import in_simulation

SETTINGS = small_settings()


class Buckets:
    """A bucket and the WAL stores `a` and `b`."""

    def __init__(self) -> None:
        self.main = MemoryBucket()
        self.stores = {"a": MemoryBucket(), "b": MemoryBucket()}

    def store(self, own: str | None = None, names: str = "ab") -> StreamStores:
        named = {
            name: NamedStore(f"memory://{name}", MemoryStore(self.stores[name])) for name in names
        }
        return StreamStores(MemoryStore(self.main), StreamPlaces(named, own))


@in_simulation
async def test_a_stream_begins_in_the_store_of_its_process() -> None:
    buckets = Buckets()
    node = await started(buckets.store("a"), SETTINGS)
    assert node.cluster.state.brokers[node.incarnation].wal_store is not None
    assert WAL_STORE_KEY in buckets.stores["a"].objects
    other = await Node.start(buckets.store("b"), SETTINGS, node_id=2)
    assert WAL_STORE_KEY in buckets.stores["b"].objects
    plain = await Node.start(buckets.store(), SETTINGS, node_id=3)
    assert plain.cluster.state.brokers[plain.incarnation].wal_store is None
    for each in (node, other, plain):
        await each.close()


@in_simulation
async def test_every_process_must_know_the_stores_of_all_streams() -> None:
    buckets = Buckets()
    node = await started(buckets.store("a"), SETTINGS)
    with pytest.raises(InvalidError, match=r"which wal\.store does not name"):
        await Node.start(buckets.store("b", names="b"), SETTINGS, node_id=2)
    with pytest.raises(UnsupportedError, match=r"lie in other stores \(a\)"):
        await Node.start(MemoryStore(buckets.main), SETTINGS, node_id=2)
    view = ClusterLog(MemoryStore(buckets.main))
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            await view.refresh()
    await node.abort()


@in_simulation
async def test_a_store_of_another_cluster_or_name_is_refused() -> None:
    buckets = Buckets()
    await create_identity(MemoryStore(buckets.stores["a"]), "another", "a")
    with pytest.raises(InvalidError, match="is WAL store 'a' of cluster another"):
        await Node.start(buckets.store("a"), SETTINGS, node_id=1, probe=False)
    buckets = Buckets()
    node = await started(buckets.store("a"), SETTINGS)
    cluster_id = node.cluster.state.cluster_id
    await create_identity(MemoryStore(buckets.stores["b"]), cluster_id, "a")
    with pytest.raises(InvalidError, match="is WAL store 'a' of cluster"):
        await Node.start(buckets.store("b"), SETTINGS, node_id=2)
    await node.abort()


@in_simulation
async def test_a_bucket_of_the_first_feature_level_gets_the_second_at_once() -> None:
    buckets = Buckets()
    await ClusterLog(buckets.store()).propose(lambda _: Init("c", 1, 0))
    node = await Node.start(buckets.store("a"), SETTINGS, node_id=1)
    assert node.cluster.state.feature_level == 2
    await node.close()


@in_simulation
async def test_streams_of_a_wal_store_are_retired_where_they_lie() -> None:
    buckets = Buckets()
    node = await started(buckets.store("a"), SETTINGS)
    prefix = f"wal/{node.incarnation:020d}/"
    leader = node.leader("t", 0)
    await send(node, ["x"])
    await node.abort()
    heir = await Node.start(buckets.store("b"), SETTINGS, node_id=2)
    await take_over(heir)
    heir_leader = heir.leader("t", 0)
    assert heir_leader is not leader
    while await heir_leader.tier():
        pass
    await heir.maintenance.record_tiered_streams()
    await declare_others_dead(heir)
    await retire_streams(heir.store, heir.cluster)
    left = [key for key in buckets.stores["a"].keys if key.startswith(prefix)]
    assert len(left) == 2  # the seal at its end and the checkpoint there
    assert not [key for key in buckets.main.keys if key.startswith("wal/")]
    # With its streams retired, nothing is left to give up.
    await heir.cluster.refresh()
    with pytest.raises(InvalidError, match="no stream of this cluster lies in a WAL store 'c'"):
        await abandon_wal(buckets.store(), "c", accept_loss=True)
    await heir.close()
