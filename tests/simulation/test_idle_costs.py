"""What an idle cluster of three brokers costs on S3: whole brokers, and every request counted."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.log import ClusterLog
from neve.serving.addresses import Address
from neve.settings import BrokerSettings, Settings
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.wrapper import Call, Wrapper
from support.simulated_network import Network, RemoteStore, simulate
from support.wire import start_broker_at

T = TypeVar("T")
BROKERS, PORT = 3, 9092
SETTLING_SECONDS, MEASURED_SECONDS = 120.0, 3600.0
HOURS_PER_MONTH = 730
# S3 Standard, in dollars per request. Deletes cost nothing.
PRICES = {
    "get": 0.0004 / 1000,
    "get_range": 0.0004 / 1000,
    "put": 0.005 / 1000,
    "create": 0.005 / 1000,
    "list": 0.005 / 1000,
    "delete": 0.0,
}
DOLLARS_PER_MONTH_MAX = 2.5  # half of what is promised


class CountingStore(Wrapper):
    """Counts the requests of one broker."""

    def __init__(self, bucket: MemoryBucket) -> None:
        super().__init__(MemoryStore(bucket))
        self.counts: Counter[str] = Counter()

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        self.counts[call.operation] += 1
        return await work()


class IdleCluster:
    """Three brokers that nobody uses."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.bucket = MemoryBucket()
        self.brokers: list[Broker] = []
        self.stores = [CountingStore(self.bucket) for _ in range(BROKERS)]

    async def start(self) -> None:
        for at, store in enumerate(self.stores, 1):
            host = self.network.host(f"b{at}")
            given = dataclasses.replace(BrokerSettings(), node_id=at)
            settings = dataclasses.replace(Settings(), broker=given)
            remote = RemoteStore(store, self.network)
            address = Address(host.name, PORT)
            starting = start_broker_at(host.socket(PORT), address, remote, settings)
            self.brokers.append(await host.run(starting))

    async def requests(self, seconds: float) -> list[Counter[str]]:
        """The requests of each broker in this time."""
        for store in self.stores:
            store.counts.clear()
        await runtime.sleep(seconds)
        return [Counter(store.counts) for store in self.stores]

    async def seconds_until_known(self) -> float:
        """How long it takes until all brokers know of a change that none of them has made."""
        log = ClusterLog(MemoryStore(self.bucket))
        await log.refresh()
        await log.set_draining(9, draining=9 not in log.state.draining)
        began = runtime.monotonic()
        while any(each.node.cluster.view.position < log.view.position for each in self.brokers):
            await runtime.sleep(0.1)
        return runtime.monotonic() - began


def dollars_per_month(counts: Counter[str], seconds: float) -> float:
    dollars = sum(PRICES[operation] * count for operation, count in counts.items())
    return dollars * HOURS_PER_MONTH * 3600 / seconds


@pytest.mark.slow
def test_an_idle_cluster_costs_little() -> None:
    async def scenario(network: Network) -> list[Counter[str]]:
        cluster = IdleCluster(network)
        await cluster.start()
        await runtime.sleep(SETTLING_SECONDS)
        return await cluster.requests(MEASURED_SECONDS)

    found = simulate(scenario, seed=1)
    costs = [dollars_per_month(counts, MEASURED_SECONDS) for counts in found]
    for counts, dollars in zip(found, costs, strict=True):
        print(dict(counts), f"${dollars:.2f} a month")
    assert sum(costs) < DOLLARS_PER_MONTH_MAX, found
    for counts in found:
        assert counts["put"] == counts["create"] == 0, "an idle broker writes nothing"


def test_a_change_that_no_broker_has_made_is_known_soon() -> None:
    """One broker looks for the others, and its pings tell them."""

    async def scenario(network: Network) -> list[float]:
        cluster = IdleCluster(network)
        await cluster.start()
        await runtime.sleep(30)
        return [await cluster.seconds_until_known() for _ in range(3)]

    poll_seconds = Settings().cluster.poll_ms / 1000
    ping_seconds = Settings().cluster.heartbeat_ms / 1000
    assert max(simulate(scenario, seed=1)) < poll_seconds + 2 * ping_seconds


def test_brokers_that_hear_no_positions_look_for_themselves() -> None:
    async def scenario(network: Network) -> float:
        cluster = IdleCluster(network)
        await cluster.start()
        await runtime.sleep(30)
        for one, two in itertools.combinations(range(1, BROKERS + 1), 2):
            network.cut(f"b{one}", f"b{two}")
        await runtime.sleep(3)
        return await cluster.seconds_until_known()

    settings = Settings().cluster
    assert simulate(scenario, seed=1) < (settings.poll_ms + 3 * settings.heartbeat_ms) / 1000
