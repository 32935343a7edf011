"""`neve cluster demo`: three brokers on this machine that share a folder.

A topic is spread over the brokers. One of them is killed while a producer writes: the others take
its partitions over, and nothing is lost. It is started again, another one is drained and stopped,
and the load is balanced. At the end every order is in the folder once.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket
from neve.cli.demo_kafka import WAIT_SECONDS, Broker, DemoError, consume, create, produce, say

TOPIC, PARTITIONS = "orders", 6
NODES = (1, 2, 3)
KILLED, DRAINED = 2, 3
FIRST, SECOND, THIRD = range(10_000), range(10_000, 20_000), range(20_000, 30_000)
KILLED_AT = 13_000
# Failures are noticed sooner than by default, and load is only balanced when the tour asks for it.
TIMES = (
    "cluster.heartbeat.ms=300",
    "cluster.session.ms=2000",
    "cluster.poll.ms=500",
    "cluster.rebalance.delay.ms=60000",  # `rebalance` does not wait for it
)


def demo_cluster() -> int:
    """Show three brokers that share a bucket: failover, draining, balancing."""
    started = runtime.monotonic()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="neve-cluster-"))
        say(f"Three brokers share a folder: {folder}")
        brokers = {node: stack.enter_context(_broker(folder, node)) for node in NODES}
        addresses = ",".join(broker.address for broker in brokers.values())
        create(addresses, TOPIC, PARTITIONS)
        say(f"A topic with {PARTITIONS} partitions is spread over them:")
        _command("status", folder)
        _write(addresses, FIRST)
        _kill_one(brokers[KILLED], addresses)
        _command("status", folder)
        say(f"Broker {KILLED} is started again, and the load is balanced at once:")
        brokers[KILLED] = stack.enter_context(_broker(folder, KILLED))
        addresses = ",".join(broker.address for broker in brokers.values())
        _command("rebalance", folder)
        say(f"Broker {DRAINED} is drained before it is stopped:")
        _command("drain", folder, str(DRAINED))
        brokers[DRAINED].stop()
        _write(addresses, THIRD)
        consume(addresses, TOPIC, THIRD.stop)
        _command("undrain", folder, str(DRAINED))
        _command("remove", folder, str(DRAINED))
        _command("status", folder)
        say("The other brokers are stopped: each hands its partitions over first, the last cannot.")
        for broker in brokers.values():
            broker.stop()
        runtime.run(_check(folder))
    say(f"Done in {runtime.monotonic() - started:.0f} s. Where to look next:")
    print(
        "  neve serve --brokers 3                  three brokers on ./neve-data\n"
        "  neve cluster --help                     see, drain, balance and remove brokers\n"
        "  docs/operators/cluster.md               how to run a cluster"
    )
    return 0


def _broker(folder: str, node_id: int) -> Broker:
    return Broker(
        folder,
        name=f"Broker {node_id} in rack r{node_id}",
        settings=(*TIMES, f"broker.node.id={node_id}", f"broker.rack=r{node_id}"),
    )


def _command(name: str, folder: str, *arguments: str) -> None:
    """Run `neve cluster …` as a user does, and show it."""
    words = ["cluster", name, *arguments, "--store", folder]
    print(f"\n$ neve {' '.join(words)}", flush=True)
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "neve.cli", *words], check=False, timeout=2 * WAIT_SECONDS
    )
    if done.returncode:
        raise DemoError(f"`neve cluster {name}` has ended with {done.returncode}: this is a bug")


def _orders(numbers: range) -> Iterator[tuple[str, dict[str, Any]]]:
    for number in numbers:
        yield f"order {number}", {"order": number}


def _write(addresses: str, numbers: range) -> None:
    started = runtime.monotonic()
    count = produce(addresses, TOPIC, _orders(numbers))
    say(
        f"An idempotent Kafka producer wrote {count} orders with acks=all in "
        f"{runtime.monotonic() - started:.2f} s."
    )


def _kill_one(broker: Broker, addresses: str) -> None:
    """Write orders, and kill a broker in the middle."""
    killed_at = 0.0

    def orders() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal killed_at
        for key, value in _orders(SECOND):
            if value["order"] == KILLED_AT:
                say(f"Broker {KILLED} is killed with SIGKILL while a producer writes.")
                broker.kill()
                killed_at = runtime.monotonic()
            yield key, value

    count = produce(addresses, TOPIC, orders())
    say(
        f"The producer went on by itself: all {count} orders are acknowledged "
        f"{runtime.monotonic() - killed_at:.1f} s after that. The others lead the partitions now:"
    )


async def _check(folder: str) -> None:
    """Read the folder without a broker: each order is there once."""
    keys: Counter[bytes | None] = Counter()
    async with await AsyncBucket.connect(folder) as bucket:
        async for record in bucket.read(TOPIC):
            keys[record.key] += 1
    if keys != Counter(f"order {number}".encode() for number in range(THIRD.stop)):
        raise DemoError("the bucket does not hold every acknowledged order once: this is a bug")
    say(f"The folder, read without a broker: {THIRD.stop} orders, each once.")
