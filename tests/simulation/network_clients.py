"""Clients of a simulated cluster: producers, consumers, and one that asks where logs end.

They know the brokers' addresses and ask them for the rest. What they are told goes to `Promises`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.produce import PRODUCE
from neve.records.batch import walk
from neve.records.reference import Record, build_batch, decode_batch
from neve.serving.addresses import Address
from simulation.checker import Sent
from simulation.network_cluster import PORT, Cluster, host_name
from simulation.network_plan import READ_FROM_FOLLOWER
from simulation.network_promises import StalledError
from support.wire import Wire

TOPIC = "t"
LATEST = -1
ANSWER_SECONDS_MAX = 6.0
JOIN_SECONDS_MAX = 15.0
SEND_SECONDS_MAX = 400.0
# What a client may be told while leaders move; it asks for metadata and tries again. A fetch whose
# store is slow has the code KAFKA_STORAGE_ERROR, after which every consumer tries again.
MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
_NO_IDS_YET = frozenset((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.KAFKA_STORAGE_ERROR))


def broker_at(node_id: int) -> Address:
    return Address(host_name(node_id), PORT)


class RetryError(Exception):
    """There was no answer, or one after which a client tries again."""


class Client:
    """A client on a host of its own, with one connection to each broker that it talks to.

    One that has a rack reads from the followers that leaders name to it.
    """

    def __init__(self, cluster: Cluster, rack: str = "") -> None:
        self.cluster = cluster
        self._rack = rack
        self.promises = cluster.promises
        self._wires: dict[Address, Wire] = {}
        self._leaders: dict[tuple[str, int], Address] = {}
        self._preferred: dict[tuple[str, int], Address] = {}  # the followers to read from
        self.topic_ids: dict[str, Any] = {}
        self.counts: dict[str, int] = {}  # partitions of each topic
        cluster.closing.append(self.close)

    def any_broker(self) -> Address:
        return broker_at(self.any_node())

    def any_node(self) -> int:
        return runtime.chance().choice(self.cluster.nodes)

    async def ask(
        self, address: Address, api: Any, version: int, request: Any, seconds: float = 0.0
    ) -> Any:
        """Send a request and return its answer. Raises RetryError if there is none."""
        try:
            async with runtime.deadline(seconds or ANSWER_SECONDS_MAX):
                wire = self._wires.get(address) or await self._open(address)
                answer = await wire.ask(api, version, request)
        except (OSError, EOFError, TimeoutError) as error:
            self._close(address)
            raise RetryError(f"{api.name} at {address}: {error!r}") from error
        self.cluster.report.operations += 1
        return answer

    async def _open(self, address: Address) -> Wire:
        reader, writer = await asyncio.open_connection(*address)
        self._wires[address] = Wire(reader, writer)
        return self._wires[address]

    def close(self) -> None:
        for address in list(self._wires):
            self._close(address)

    def _close(self, address: Address) -> None:
        wire = self._wires.pop(address, None)
        if wire is not None:
            wire.writer.close()

    async def leader_of(self, topic: str, partition: int) -> Address:
        """The leader as the metadata of some broker has it. Raises RetryError if it has none."""
        if (topic, partition) not in self._leaders:
            await self.learn(topic)
        try:
            return self._leaders[topic, partition]
        except KeyError:
            raise RetryError(f"{topic}-{partition} has no leader") from None

    async def learn(self, topic: str) -> None:
        """Ask some broker for a topic: its id, its partitions and their leaders."""
        topics = [METADATA.Request.Topic(name=topic)]
        body = METADATA.Request(topics=topics, allow_auto_topic_creation=False)
        found = await self.ask(self.any_broker(), METADATA, 12, body)
        addresses = {row.node_id: Address(row.host, row.port) for row in found.brokers}
        row = found.topics[0]
        if row.error_code != ErrorCode.NONE:
            self.topic_ids.pop(topic, None)
            return
        self.topic_ids[topic] = row.topic_id
        self.counts[topic] = len(row.partitions)
        for part in row.partitions:
            if part.leader_id in addresses:
                self._leaders[topic, part.partition_index] = addresses[part.leader_id]

    async def topic_id(self, topic: str) -> Any:
        if topic not in self.topic_ids:
            await self.learn(topic)
        if topic not in self.topic_ids:
            raise RetryError(f"{topic} is not known")
        return self.topic_ids[topic]

    def forget(self, topic: str, partition: int) -> None:
        self._leaders.pop((topic, partition), None)
        self._preferred.pop((topic, partition), None)

    async def at_leader(self, topic: str, partition: int, api: Any, version: int, body: Any) -> Any:
        """Ask the leader of a partition. It is forgotten if it does not answer."""
        try:
            return await self.ask(await self.leader_of(topic, partition), api, version, body)
        except RetryError:
            self.forget(topic, partition)
            raise

    async def producer_id(self) -> int:
        body = INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            with contextlib.suppress(RetryError):
                answer = await self.ask(self.any_broker(), INIT_PRODUCER_ID, 4, body)
                if answer.error_code == ErrorCode.NONE:
                    return int(answer.producer_id)
                if answer.error_code not in _NO_IDS_YET:
                    self.promises.unexpected("producer id", answer.error_code)
            await pause(0.1, 0.5)

    async def produce(
        self, topic: str, topic_id: Any, partition: int, batch: bytes
    ) -> tuple[int, int]:
        """Send a batch to the leader. Returns the error code and the base offset."""
        request = PRODUCE.Request
        part = request.Partition(index=partition, records=batch)
        of_topic = request.Topic(topic_id=topic_id, partition_data=[part])
        body = request(acks=-1, timeout_ms=4_000, topic_data=[of_topic])
        answer = await self.at_leader(topic, partition, PRODUCE, 13, body)
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    async def fetch(
        self, topic: str, topic_id: Any, partition: int, offset: int
    ) -> tuple[int, list[tuple[int, bytes]]]:
        """Fetch from an offset, at the follower that the leader has named, or at the leader.

        Returns the error code and offsets with values.
        """
        request = FETCH.Request
        part = request.Partition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        body = request(
            max_wait_ms=200,
            min_bytes=1,
            session_epoch=-1,
            rack_id=self._rack,
            topics=[request.Topic(topic_id=topic_id, partitions=[part])],
        )
        follower = self._preferred.get((topic, partition))
        try:
            source = follower or await self.leader_of(topic, partition)
            answer = await self.ask(source, FETCH, 13, body)
        except RetryError:
            self.forget(topic, partition)
            raise
        if answer.error_code != ErrorCode.NONE:
            return answer.error_code, []
        row = answer.responses[0].partitions[0]
        if row.preferred_read_replica >= 0:
            named = Address(host_name(row.preferred_read_replica), PORT)
            self._preferred[topic, partition] = named
        if row.error_code != ErrorCode.NONE:
            return row.error_code, []
        if row.records and follower is not None:
            self.cluster.report.note(READ_FROM_FOLLOWER)
        return ErrorCode.NONE, records_of(row.records)


def records_of(data: Any) -> list[tuple[int, bytes]]:
    return [
        (header.base_offset + at, bytes(record.value or b""))
        for position, header in walk(memoryview(data or b""))
        for at, record in enumerate(decode_batch(data, position))
    ]


def batch_of(sent: Sent, *, producer_id: int = -1, sequence: int = -1) -> bytes:
    """The bytes of a batch. An idempotent producer sends the same bytes again."""
    records = [Record(at, runtime.now_ms(), None, sent.payload) for at in range(sent.records)]
    epoch = 0 if producer_id >= 0 else -1
    return bytes(
        build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


async def pause(low: float, high: float) -> None:
    await runtime.sleep(runtime.chance().uniform(low, high))


async def again(cluster: Cluster, work: Callable[[], Awaitable[None]], calm: float = 0.3) -> None:
    """Do something again and again until the run is over."""
    while not cluster.is_over:
        await pause(0.02, calm)
        with contextlib.suppress(RetryError):
            await work()


# -- producers -------------------------------------------------------------------------------------


class Producer:
    """Sends batches one after the other.

    An idempotent one sends each until it is acknowledged; another one sends each once.
    """

    def __init__(self, client: Client, number: int, *, is_idempotent: bool) -> None:
        self._client = client
        self._promises = client.promises
        self._number = number
        self._is_idempotent = is_idempotent
        self._producer_id = -1
        self._next_sequence: Counter[int] = Counter()  # by partition

    async def run(self, batches: int, partitions: int) -> None:
        if self._is_idempotent:
            self._producer_id = await self._client.producer_id()
        for number in range(batches):
            self._promises.check()
            partition = runtime.chance().randrange(partitions)
            count = runtime.chance().randint(1, 3)
            sent = self._promises.checker.send(self._number, number, partition, count)
            sequence = self._next_sequence[partition] if self._is_idempotent else -1
            data = batch_of(sent, producer_id=self._producer_id, sequence=sequence)
            await self._deliver(sent, data)
            self._next_sequence[partition] += count
            await pause(0.0, 0.3)

    async def _deliver(self, sent: Sent, data: bytes) -> None:
        gives_up_at = runtime.monotonic() + SEND_SECONDS_MAX
        while not await self._send(sent, data):
            self._promises.check()
            if not self._is_idempotent:
                sent.refused = True  # or stored all the same: it is never sent again
                return
            if runtime.monotonic() > gives_up_at:
                raise StalledError(f"{sent.payload!r} was not taken in {SEND_SECONDS_MAX:.0f} s")

    async def _send(self, sent: Sent, data: bytes) -> bool:
        client, partition = self._client, sent.partition
        assert isinstance(partition, int)
        try:
            topic_id = await client.topic_id(TOPIC)
            code, offset = await client.produce(TOPIC, topic_id, partition, data)
        except RetryError:
            await pause(0.1, 0.5)
            return False
        if code == ErrorCode.NONE:
            self._promises.checker.acknowledged(sent, offset)
            self._promises.has_reached(partition, offset + sent.records)
            return True
        if code not in MOVED:
            self._promises.unexpected(f"produce to {partition}", code)
        client.forget(TOPIC, partition)
        await pause(0.1, 0.5)
        return False


# -- readers ---------------------------------------------------------------------------------------


class Consumer:
    """Reads all partitions, wherever some leader is said to be. What was read never changes."""

    def __init__(self, client: Client, partitions: int) -> None:
        self._client = client
        self._positions = dict.fromkeys(range(partitions), 0)

    def unread(self, ends: Mapping[Hashable, int]) -> dict[int, tuple[int, int]]:
        """Its position and the end of each partition in which it has not read up to there."""
        return {
            partition: (position, ends[partition])
            for partition, position in self._positions.items()
            if position < ends.get(partition, 0)
        }

    async def read_some(self) -> None:
        partition = runtime.chance().choice(list(self._positions))
        self._positions[partition] = await read(self._client, partition, self._positions[partition])


async def read(client: Client, partition: int, position: int) -> int:
    """Read on in a partition of the topic. Returns the next position."""
    code, records = await client.fetch(TOPIC, await client.topic_id(TOPIC), partition, position)
    if code in MOVED:
        client.forget(TOPIC, partition)
        return position
    if code != ErrorCode.NONE:
        client.promises.unexpected(f"fetch of {partition} from {position}", code)
        return position
    return client.promises.was_read(partition, position, records)


async def ask_for_the_end(client: Client, partitions: int) -> None:
    """Ask any broker, also one that should not lead any more. Most will refuse."""
    partition = runtime.chance().randrange(partitions)
    known = client.promises.ends.get(partition, 0)
    request = LIST_OFFSETS.Request
    part = request.Partition(partition_index=partition, timestamp=LATEST)
    body = request(replica_id=-1, topics=[request.Topic(name=TOPIC, partitions=[part])])
    answer = await client.ask(client.any_broker(), LIST_OFFSETS, 5, body)
    row = answer.topics[0].partitions[0]
    if row.error_code == ErrorCode.NONE:
        client.promises.answered_end(partition, known, row.offset)
        client.cluster.report.note("end answered")
    elif row.error_code not in MOVED:
        client.promises.unexpected(f"end of {partition}", row.error_code)
