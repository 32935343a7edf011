"""Reading a whole log from a healthy store, by the plainest means there are."""

from __future__ import annotations

import functools

from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.state import Topic
from neve.errors import FencedError
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.partition import Appended
from neve.log.segment import kfs
from neve.log.tail import assemble, read_streams
from neve.log.wal.reader import WalReader
from neve.records.batch import walk
from neve.records.reference import decode_batch
from neve.store.port import Store


class UnsettledError(Exception):
    """The log moved while it was read."""


async def read_log(store: Store, topic: Topic, partition: int) -> tuple[int, dict[int, bytes]]:
    """The log's start, and every record's value by offset."""
    state = topic.partitions[partition]
    tails = await read_streams(store, (part.incarnation for part in state.streams), whole=True)
    manifest = Manifest(store, manifest_keys(topic.name, topic.id_bytes, partition))
    listed = await manifest.refresh()
    tail = assemble(topic.id_bytes, partition, state.streams, tails, listed)
    if tail is None:
        raise UnsettledError
    log: dict[int, bytes] = {}
    for segment in await manifest.segments():
        data = await store.get(segment.key)
        kfs.check(data, segment.key)
        _take(log, data[kfs.HEADER_BYTES : -kfs.FOOTER_BYTES], listed.start)
    for incarnation, item, entry in tail.slices:
        _take(log, await WalReader(store, incarnation).slice_data(item, entry), listed.start)
    return listed.start, log


def _take(log: dict[int, bytes], data: memoryview, start: int) -> None:
    for position, header in walk(data):
        records = _values(bytes(data[position : position + header.size]))
        for offset, value in enumerate(records, header.base_offset):
            if offset >= start:
                assert log.setdefault(offset, value) == value, offset


@functools.lru_cache(maxsize=4096)
def _values(batch: bytes) -> list[bytes]:
    """The values of a checked batch. Readers see the same batches again and again."""
    return [bytes(record.value or b"") for record in decode_batch(batch)]


async def read_all(store: Store, name: str) -> tuple[dict[int, int], dict[int, dict[int, bytes]]]:
    """Starts and logs of every partition of a topic."""
    topic = (await ClusterLog(store).must_exist()).topic(name)
    assert topic is not None
    starts, logs = {}, {}
    for partition in range(len(topic.partitions)):
        starts[partition], logs[partition] = await read_log(store, topic, partition)
    return starts, logs


def append_to(node: Node, topic_id: bytes, partition: int, batch: bytearray) -> Appended:
    """Append a batch as a broker would. Raises FencedError if the node does not lead."""
    leader = node.leader_of(topic_id, partition)
    if leader is None:
        raise FencedError(f"partition {partition} of {topic_id.hex()} is not led here")
    return leader.append(batch)
