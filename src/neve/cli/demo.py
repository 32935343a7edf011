"""`neve demo`: what there is, shown in a few seconds on a folder that is thrown away.

A node writes, tiers and rolls up; the bucket is read without it; the node is killed in the middle
of its work; another one takes over, and everything that was acknowledged is still there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from neve import runtime
from neve.bucket.model import Record
from neve.bucket.reader import AsyncBucket
from neve.cli import listing
from neve.cluster.node import Node
from neve.errors import NeveError
from neve.records import reference
from neve.records.reference import build_batch
from neve.settings import Settings, load
from neve.store.url import connect

TOPIC, PARTITIONS = "orders", 3
BATCHES, BATCH_RECORDS = 60, 50
ZSTD = 4
HEADERS = (("source", b"demo"),)


class DemoError(NeveError):
    """Something was not as the demonstration says: a bug."""


def demo() -> int:
    """Show what Neve does: write, tier, read without a broker, crash and recover."""
    with tempfile.TemporaryDirectory(prefix="neve-demo-") as folder:
        runtime.run(_story(folder))
    return 0


async def _story(url: str) -> None:
    settings = load(flags={"wal.object.bytes": 16 * 1024})
    _say(f"A folder is the whole installation: {url}")
    stack = connect(url, settings.store)
    try:
        node = await Node.start(stack.store, settings, node_id=1)
        told = await _write(node)
        await _tier(node)
        await _read(url, settings, told)
        told += await _crash(node, told)
        second = await Node.start(stack.store, settings, node_id=2)
        await _recover(second, url, settings, told)
        await second.close()
    finally:
        await stack.close()
    _say("Nothing that was acknowledged is lost, and there never was anything but the folder.")


async def _write(node: Node) -> list[str]:
    _say(f"Node 1 registers (incarnation {node.incarnation}) and creates {TOPIC!r}.")
    await node.create_topic(TOPIC, PARTITIONS)
    started = runtime.monotonic()
    told = await _append(node, range(BATCHES), wait=True)
    seconds = runtime.monotonic() - started
    _say(
        f"It appends {len(told)} records in {BATCHES} compressed batches; all were acknowledged "
        f"after {seconds:.2f} s, each once its WAL object was synced to disk."
    )
    return told


async def _append(node: Node, batches: Sequence[int], *, wait: bool) -> list[str]:
    """Append batches round robin; the values, in the order of their offsets by partition."""
    values: list[str] = []
    waiting = []
    for index in batches:
        texts = [f"order {index * BATCH_RECORDS + i}" for i in range(BATCH_RECORDS)]
        log = node.log(TOPIC, index % PARTITIONS)
        await node.writer.room()
        waiting.append(log.append(_batch(texts)).commit)
        values += texts
    if wait:
        for commit in waiting:
            await commit.wait()
    return values


def _batch(texts: Sequence[str]) -> bytearray:
    now = runtime.now_ms()
    records = [
        reference.Record(i, now, f"customer {i % 7}".encode(), text.encode(), HEADERS)
        for i, text in enumerate(texts)
    ]
    return bytearray(build_batch(records, codec=ZSTD))


async def _tier(node: Node) -> None:
    for number in range(PARTITIONS - 1):
        await node.log(TOPIC, number).tier()
    await node.roll_up()
    _say(
        "Two partitions are tiered into segments with their indexes; what is left of the WAL is "
        "rolled up into one object."
    )


async def _read(url: str, settings: Settings, told: Sequence[str]) -> None:
    _say("Now without the node, as `neve storage ls` and `neve.open` read it:")
    async with await AsyncBucket.connect(url, settings=settings) as bucket:
        listing.print_info(url, await bucket.describe())
        records = [record async for record in bucket.read(TOPIC)]
        _check(records, told)
        print()
        print(f"  {len(records)} records, the first: {_shown(records[0])}")
        rows = size = 0
        async for batch in bucket.arrow(TOPIC):
            rows += batch.num_rows
            size += batch.nbytes
        print(f"  the same as Arrow: {rows} rows, {size} bytes of columns")


async def _crash(node: Node, told: Sequence[str]) -> list[str]:
    """More records; the last of them are still under way when the node dies."""
    first = len(told) // BATCH_RECORDS
    committed = await _append(node, range(first, first + PARTITIONS), wait=True)
    undecided = await _append(node, range(first + PARTITIONS, first + 2 * PARTITIONS), wait=False)
    await node.abort()
    _say(
        f"Node 1 commits {len(committed)} more, and is killed with {len(undecided)} on their way "
        "that nobody was promised."
    )
    return committed


async def _recover(node: Node, url: str, settings: Settings, told: Sequence[str]) -> None:
    started = runtime.monotonic()
    await node.lead()
    seconds = runtime.monotonic() - started
    _say(
        f"Node 2 (incarnation {node.incarnation}) seals the dead stream, reads its tail and leads "
        f"all {PARTITIONS} partitions after {seconds:.2f} s."
    )
    first = len(told) // BATCH_RECORDS + PARTITIONS
    more = await _append(node, range(first, first + PARTITIONS), wait=True)
    async with await AsyncBucket.connect(url, settings=settings) as bucket:
        records = [record async for record in bucket.read(TOPIC)]
        _check(records, [*told, *more])
        listing.print_info(url, await bucket.describe())
    print()
    print(
        f"  {len(records)} records, of which {len(told) + len(more)} were acknowledged: all there"
    )


def _check(records: Sequence[Record], told: Sequence[str]) -> None:
    """Every acknowledged record is there once, and each partition's offsets have no hole."""
    found = [(record.value or b"").decode() for record in records]
    if missing := set(told) - set(found):
        raise DemoError(f"{len(missing)} acknowledged records are gone: this is a bug")
    if len(set(found)) != len(found):
        raise DemoError("some records are there twice: this is a bug")
    for number in range(PARTITIONS):
        offsets = [record.offset for record in records if record.partition == number]
        if offsets != list(range(len(offsets))):
            raise DemoError(f"the offsets of partition {number} have a hole: this is a bug")


def _shown(record: Record) -> str:
    key, value = (record.key or b"").decode(), (record.value or b"").decode()
    return f"{record.topic}-{record.partition} offset {record.offset}: {key!r} -> {value!r}"


def _say(line: str) -> None:
    print(f"\n* {line}\n", flush=True)
