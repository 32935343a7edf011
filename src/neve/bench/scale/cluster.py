"""A simulated cluster of any size: real nodes, memberships and background loops, one bucket.

It begins with a checkpoint of the cluster log, as if all brokers had registered and all topics had
been created before. Every broker has a store of its own over the shared bucket, with the latencies
of `slow_bucket`, which counts its requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from neve import runtime
from neve.bench.kafka.measure import BenchError
from neve.bench.scale.link import PeerNetwork, SimulatedLink
from neve.bench.scale.shared_series import SharedSeries, SharedStates
from neve.bench.storage.slow_bucket import LATENCIES
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.fold import ClusterRules
from neve.cluster.log import ClusterLog
from neve.cluster.membership import Membership
from neve.cluster.node import LINGER_MS_WHERE_PUTS_COST, Node
from neve.cluster.peer_auth import KeyPair
from neve.cluster.records import FEATURE_LEVEL
from neve.cluster.state import BrokerRegistration, ClusterState, PartitionState, StreamPart, Topic
from neve.log.keys import cluster_log
from neve.log.series import Series, View
from neve.settings import Settings
from neve.store.faults import FaultyStore
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.wrapper import Call, Operation, Wrapper

T = TypeVar("T")

PARTITIONS_PER_TOPIC = 50
RACKS = 3
PORT = 9092
POLL_SECONDS = 0.02
WAIT_SECONDS_MAX = 900.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many brokers and partitions a simulated cluster has."""

    brokers: int
    partitions: int

    def __post_init__(self) -> None:
        if self.brokers < 2 or self.partitions < self.brokers:
            raise BenchError(
                "a simulated cluster must have at least 2 brokers, and a partition for each"
            )


class CountingStore(Wrapper):
    """The store of one broker: slow, and its requests are counted."""

    def __init__(self, bucket: MemoryBucket) -> None:
        super().__init__(FaultyStore(MemoryStore(bucket), latencies=LATENCIES))
        self.requests: Counter[Operation] = Counter()

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        self.requests[call.operation] += 1
        return await work()


@dataclass(frozen=True, kw_only=True)
class SimulatedBroker:
    """What a broker has below the wire."""

    node: Node
    link: SimulatedLink
    membership: Membership
    background: BackgroundLoops
    store: CountingStore

    async def abort(self) -> None:
        """Stop at once, as a crash would."""
        await self.membership.close()
        await self.node.replication.close()
        await self.background.close()
        await self.node.abort()
        await self.link.close()


class SimulatedCluster:
    """The brokers by incarnation, and their bucket. Call `close` at the end."""

    def __init__(self, size: Size, settings: Settings | None = None) -> None:
        self.size = size
        self.settings = settings or Settings()
        self.bucket = MemoryBucket()
        self.network = PeerNetwork()
        self.brokers: dict[int, SimulatedBroker] = {}
        self._shared = SharedStates()
        # Reads the log for the measurement. It sees what any broker sees, without latency.
        store = MemoryStore(self.bucket)
        self.log = ClusterLog(store, series=SharedSeries(store, self._shared))

    async def start(self) -> None:
        """Write the checkpoint, and start all brokers."""
        state = initial_state(self.size)
        view = View(self.size.brokers + 1, state)
        store = MemoryStore(self.bucket)
        await Series(store, cluster_log(), ClusterRules()).checkpoint(view)
        await self.log.refresh()
        await runtime.gather(*(self._start(state.brokers[each]) for each in sorted(state.brokers)))

    async def _start(self, row: BrokerRegistration) -> None:
        """Start the process of a registration that the checkpoint has."""
        store = CountingStore(self.bucket)
        settings = self.settings
        cluster = ClusterLog(store, settings.cluster, series=SharedSeries(store, self._shared))
        state = await cluster.refresh()
        cluster.incarnation = row.incarnation
        node = Node(
            store,
            settings,
            cluster,
            row.incarnation,
            node_id=row.node_id,
            key_pair=KeyPair.generate(),
            linger_ms=LINGER_MS_WHERE_PUTS_COST,
            join_bytes=0,
        )
        # All topics have just appeared for it: its partitions are new, and there are no records.
        node.takeover.cluster_changed(ClusterState(), state)
        await self._run(node, store)

    async def join(self, node_id: int) -> SimulatedBroker:
        """Start a broker that was never in the cluster, as `neve serve` does."""
        store = CountingStore(self.bucket)
        node = await Node.start(
            store,
            self.settings,
            node_id=node_id,
            puts_cost=True,
            host=_host(node_id),
            port=PORT,
            rack=_rack(node_id),
        )
        return await self._run(node, store)

    async def _run(self, node: Node, store: CountingStore) -> SimulatedBroker:
        link = SimulatedLink(self.network, node)
        broker = SimulatedBroker(
            node=node,
            link=link,
            membership=Membership(node, link, self.settings.cluster),
            background=BackgroundLoops(node, self.settings),
            store=store,
        )
        self.brokers[node.incarnation] = broker
        self.network.members[node.incarnation] = broker.membership
        broker.membership.start()
        node.replication.start(link)
        await node.takeover.lead()
        broker.background.start()
        return broker

    async def kill(self, incarnation: int) -> None:
        """End a broker as a crash would: its host refuses connections from then on."""
        del self.network.members[incarnation]
        await self.brokers.pop(incarnation).abort()

    async def silence(self, incarnation: int) -> None:
        """End a broker whose host goes on accepting connections, and answers nothing."""
        self.network.silent.add(incarnation)
        await self.kill(incarnation)

    async def position(self) -> int:
        """Return how many numbers the cluster log has."""
        await self.log.refresh()
        return self.log.view.position

    def leaders_served(self) -> Counter[int]:
        """How many partitions each broker serves."""
        return Counter({key: len(each.node.led.serving) for key, each in self.brokers.items()})

    def is_all_served(self) -> bool:
        """Whether every partition is served by some broker."""
        return self.leaders_served().total() == self.size.partitions

    def is_balanced(self) -> bool:
        """Whether every partition is served, and brokers serve equally many, give or take one."""
        served = self.leaders_served()
        spread = max(served.values()) - min(served.values())
        return served.total() == self.size.partitions and spread <= 1

    async def close(self) -> None:
        for broker in self.brokers.values():
            await broker.abort()
        self.brokers.clear()


async def wait_until(what: str, is_so: Callable[[], bool]) -> float:
    """Return the seconds until a condition holds. Raises BenchError after WAIT_SECONDS_MAX."""
    began = runtime.monotonic()
    while not is_so():
        if runtime.monotonic() - began > WAIT_SECONDS_MAX:
            raise BenchError(f"not within {WAIT_SECONDS_MAX:g} s: {what}")
        await runtime.sleep(POLL_SECONDS)
    return runtime.monotonic() - began


def initial_state(size: Size) -> ClusterState:
    """Return a balanced cluster: node n is incarnation n, and leads every nth partition."""
    brokers = {
        each: BrokerRegistration(
            node_id=each,
            incarnation=each,
            session=f"{each:032x}",
            inflight=Settings().wal.inflight_max,
            at_ms=0,
            host=_host(each),
            port=PORT,
            rack=_rack(each),
            level=FEATURE_LEVEL,
        )
        for each in range(1, size.brokers + 1)
    }
    topics: dict[str, Topic] = {}
    for first in range(0, size.partitions, PARTITIONS_PER_TOPIC):
        count = min(PARTITIONS_PER_TOPIC, size.partitions - first)
        topic_id = f"{first + 1:032x}"
        partitions = _partitions((first + number) % size.brokers + 1 for number in range(count))
        topics[topic_id] = Topic(
            name=f"topic-{len(topics)}", topic_id=topic_id, at_ms=0, partitions=partitions
        )
    return ClusterState(
        cluster_id=f"{1:032x}", feature_level=FEATURE_LEVEL, topics=topics, brokers=brokers
    )


def _partitions(leaders: Iterable[int]) -> tuple[PartitionState, ...]:
    return tuple(
        PartitionState(leader=leader, epoch=0, streams=(StreamPart(epoch=0, incarnation=leader),))
        for leader in leaders
    )


def _host(node_id: int) -> str:
    return f"broker-{node_id}"


def _rack(node_id: int) -> str:
    return f"rack-{node_id % RACKS}"
