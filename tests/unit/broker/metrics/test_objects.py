"""Objects by what they are: every key that a living node makes has its kind."""

from __future__ import annotations

import pytest

from neve.broker.metrics.objects import KINDS, ObjectCounts, kind_of, object_view
from neve.errors import ExistsError
from neve.log import keys
from neve.serving.pages import scrape
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import send, small_settings, started

ID = bytes(range(16))
SEGMENTS = keys.segment_prefix("t", ID, 3)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (keys.wal_stream(7).number(3), "wal"),
        (keys.wal_stream(7).checkpoint(3), "wal-checkpoint"),
        (keys.new_rollup_key(keys.wal_stream(7), 3), "rollup"),
        (keys.new_segment_key(SEGMENTS, 5, 7, "kfs"), "segment"),
        (keys.new_segment_key(SEGMENTS, 5, 7, "index"), "index"),
        (keys.manifest("t", ID, 3).number(5), "manifest"),
        (keys.manifest("t", ID, 3).checkpoint(5), "manifest"),
        (keys.new_run_key(keys.manifest("t", ID, 3)), "manifest"),
        (keys.cluster_log().number(5), "cluster"),
        (keys.cluster_log().checkpoint(5), "cluster"),
        (keys.heartbeat_key(7), "heartbeat"),
        ("probe/x", "other"),
    ],
    ids=[
        "wal",
        "wal-checkpoint",
        "rollup",
        "segment",
        "index",
        "manifest",
        "manifest-checkpoint",
        "run",
        "cluster",
        "cluster-checkpoint",
        "heartbeat",
        "other",
    ],
)
def test_a_key_tells_what_it_is(key: str, kind: str) -> None:
    assert kind_of(key) == kind
    assert kind in KINDS


async def test_what_a_node_writes_and_deletes_is_counted_once() -> None:
    bucket = MemoryBucket()
    counts = ObjectCounts(MemoryStore(bucket))
    node = await started(counts, small_settings(segment_bytes=100))
    for at in range(20):
        await send(node, [f"value {at}"])
    for leader in node.led.partitions.values():
        while await leader.tier():
            pass
    await node.rollups.roll_up()
    assert counts.written["wal"] == 20
    assert counts.written["segment"] == counts.written["index"] > 0
    assert counts.written["wal-checkpoint"] == 1
    assert counts.deleted["wal"] == 20
    assert counts.written["other"] == 0
    assert sum(counts.written.values()) - sum(counts.deleted.values()) == len(bucket.objects)
    exposed = (await scrape([lambda: object_view(counts)])).decode()
    assert 'neve_objects_deleted_total{kind="wal"} 20\n' in exposed
    await node.close()


async def test_a_refused_create_is_not_counted() -> None:
    counts = ObjectCounts(MemoryStore())
    await counts.create("a", b"12345")
    with pytest.raises(ExistsError):
        await counts.create("a", b"12345")
    await counts.put("a", b"123")
    assert counts.written["other"] == 2
    assert counts.written_bytes["other"] == 8
