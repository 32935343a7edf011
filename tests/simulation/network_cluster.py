"""The brokers of a simulated cluster, the stores as each of them reaches them, and their clocks."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.log import ClusterLog
from neve.errors import NeveError
from neve.log.wal.stores import NamedStore, StreamPlaces, StreamStores, with_wal_stores
from neve.runtime.context import world
from neve.serving.addresses import Address
from neve.settings import BrokerSettings
from neve.store.faults import FaultyStore
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from neve.store.url import Stack, stack
from simulation.network_plan import Plan, Report
from simulation.network_promises import Promises
from simulation.network_watch import watch
from support.simulated_network import KilledError, Network, RemoteStore
from support.wire import start_broker_at

PORT = 9092
BUCKET = "store"
"""The name of the host that the bucket is on."""


def host_name(node_id: int) -> str:
    return f"b{node_id}"


def rack_name(number: int) -> str:
    return f"r{number}"


def wal_host(rack: str) -> str:
    """The name of the host that the WAL store of a rack is on."""
    return f"wal-{rack}"


def wal_url(rack: str) -> str:
    return f"memory://{rack}"


class Cluster:
    """Brokers that are started again whenever they end, and what happens to them."""

    def __init__(self, network: Network, plan: Plan) -> None:
        self.network = network
        self.plan = plan
        self.bucket = MemoryBucket()
        racks = map(rack_name, range(1, plan.brokers + 1)) if plan.wal_stores else ()
        self.wal_buckets = {rack: MemoryBucket() for rack in racks}
        self.raw = self.healthy()
        self.report = Report()
        self.promises = Promises(self.report)
        self.nodes = list(range(1, plan.brokers + 1))
        self.last_node = plan.brokers
        self.running: dict[int, Broker] = {}
        self.stores: dict[int, FaultyStore] = {}  # of the process that runs, by node
        self.wal_stores: dict[int, list[FaultyStore]] = {}  # the same
        self.clocks_ahead: dict[int, float] = {}  # by node, in seconds
        # By node: when it last could not read the cluster log for an administrator.
        self.unread_at: dict[int, float] = {}
        self.down: set[int] = set()  # nodes that are kept stopped
        self.closing: list[Callable[[], None]] = []  # closes what clients have opened
        self.is_calm = False  # nothing happens to it any more, and no topic is changed
        self.is_over = False
        self._tasks = runtime.Tasks(on_failure=self.promises.fail)

    def start(self) -> None:
        for node_id in self.nodes:
            self._tasks.start(self._serve(node_id))

    def join(self) -> None:
        """Start a broker of a new node."""
        self.last_node += 1
        self.nodes.append(self.last_node)
        self._tasks.start(self._serve(self.last_node))

    def rack_of(self, node_id: int) -> str:
        """The rack of a broker. Those that join later are in the racks of the first ones."""
        return rack_name((node_id - 1) % self.plan.brokers + 1)

    def log(self) -> ClusterLog:
        """The cluster log as somebody sees it whom no fault hits."""
        return ClusterLog(self.raw)

    def may_be_old(self, node_id: int, asked_at: float) -> bool:
        """Whether a broker may have answered an administrator without what is new in the log."""
        return self.unread_at.get(node_id, float("-inf")) >= asked_at

    async def _serve(self, node_id: int) -> None:
        """Run a broker on its host, and start it again whenever it has ended."""
        host = self.network.host(host_name(node_id))
        while not self.is_over:
            if node_id in self.down:
                await runtime.sleep(0.2)
                continue
            if node_id not in self.nodes:
                return
            with contextlib.suppress(KilledError, NeveError, OSError):
                await host.run(self._live(node_id))
            self.running.pop(node_id, None)
            for store in self.stores_of(node_id):
                self._count_faults(store)
            host.kill()  # close what a failed start has left open
            await runtime.sleep(runtime.chance().uniform(0.1, 1.0))

    async def _live(self, node_id: int) -> None:
        real = world.get()
        world.set(
            dataclasses.replace(
                real, wall=lambda: real.wall() + self.clocks_ahead.get(node_id, 0.0)
            )
        )
        host = self.network.host(host_name(node_id))
        rack = self.rack_of(node_id)
        given = dataclasses.replace(BrokerSettings(), node_id=node_id, rack=rack)
        settings = dataclasses.replace(self.plan.settings, broker=given)
        address = Address(host.name, PORT)
        store = self._connect(node_id, rack)
        broker = await start_broker_at(host.socket(PORT), address, store, settings)
        self.running[node_id] = broker
        watch(self, node_id, broker)
        self.report.starts += 1
        stopped = runtime.spawn(self._until_down(node_id))
        await asyncio.wait([broker.ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        if broker.ended.done():
            stopped.cancel()
            await broker.abort()
        else:
            await broker.stop()

    def healthy(self) -> Store:
        """The bucket without a network or faults, with its WAL stores if there are any."""
        main = MemoryStore(self.bucket)
        if not self.wal_buckets:
            return main
        named = {
            rack: NamedStore(wal_url(rack), MemoryStore(bucket))
            for rack, bucket in self.wal_buckets.items()
        }
        return StreamStores(main, StreamPlaces(named))

    def stores_of(self, node_id: int) -> list[FaultyStore]:
        """The bucket and the WAL stores as the process of a node that ran last reaches them."""
        if node_id not in self.stores:
            return []
        return [self.stores[node_id], *self.wal_stores[node_id]]

    def _connect(self, node_id: int, rack: str) -> Store | Stack:
        """The bucket as one process reaches it: through the network, and not always well."""
        settings = self.plan.settings.store
        main = self._faulty(self.bucket)
        self.stores[node_id] = main
        self.wal_stores[node_id] = []
        remote = RemoteStore(main, self.network, BUCKET)
        if not self.wal_buckets:
            return remote
        stacks = {}
        for name, bucket in self.wal_buckets.items():
            faulty = self._faulty(bucket)
            faulty.script = main.script  # what hits a stream hits it wherever it lies
            self.wal_stores[node_id].append(faulty)
            stacks[name] = stack(RemoteStore(faulty, self.network, wal_host(name)), settings)
        urls = {name: wal_url(name) for name in stacks}
        return with_wal_stores(stack(remote, settings), stacks, urls, rack)

    def _faulty(self, bucket: MemoryBucket) -> FaultyStore:
        return FaultyStore(MemoryStore(bucket), self.plan.faults, latencies=self.plan.latencies)

    def _count_faults(self, store: FaultyStore) -> None:
        for fault, count in store.counts.items():
            if count:
                self.report.note(fault.value, count)
                self.report.faults += count
            store.counts[fault] = 0

    def count_faults(self) -> None:
        for node_id in self.stores:
            for store in self.stores_of(node_id):
                self._count_faults(store)

    async def _until_down(self, node_id: int) -> None:
        while node_id not in self.down and node_id in self.nodes:
            await runtime.sleep(0.1)
