"""Topics of a simulated cluster that are created, grown, deleted and created again.

A topic's id tells the topics of one name apart, so a record of an earlier one never counts for a
later one.
"""

from __future__ import annotations

from uuid import UUID

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from simulation.checker import Sent
from simulation.network_clients import MOVED, TOPIC, Client, RetryError, batch_of, pause
from simulation.network_promises import StalledError

CHURNED = "u"
TRIES_MAX = 400
CALM_SECONDS = 4.0
_UNDECIDED = frozenset((ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER))


async def create(client: Client, name: str, partitions: int) -> bool:
    """Create a topic. Returns False if it exists, and raises RetryError if that is not known."""
    request = CREATE_TOPICS.Request
    topic = request.Topic(name=name, num_partitions=partitions, replication_factor=1)
    body = request(topics=[topic], timeout_ms=4_000)
    row = (await client.ask(client.any_broker(), CREATE_TOPICS, 7, body)).topics[0]
    if row.error_code == ErrorCode.NONE:
        client.topic_ids[name] = row.topic_id
        return True
    if row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    _refuse(client, f"create {name}", row.error_code)
    raise AssertionError


def _refuse(client: Client, about: str, code: int) -> None:
    if code not in _UNDECIDED and code not in MOVED:
        client.promises.unexpected(about, code)
    raise RetryError(f"{about}: {ErrorCode(code).name}")


async def create_first(client: Client, partitions: int) -> None:
    """Create the topic that all others use."""
    for _ in range(TRIES_MAX):
        try:
            await create(client, TOPIC, partitions)
        except RetryError:
            await pause(0.1, 0.5)
        else:
            return
    raise StalledError("the topic could not be created")


class Churn:
    """One topic after the other, all of the same name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._promises = client.promises
        self._gone: set[UUID] = set()  # ids of deleted topics, for look-ups
        self._batches = 0

    async def run(self) -> None:
        cluster = self._client.cluster
        while not cluster.is_calm:
            topic_id = await self._create(runtime.chance().randint(1, 3))
            if topic_id is None:
                return
            cluster.report.note("topic created")
            await self._use(topic_id)
            if runtime.chance().random() < 0.7:
                await self._grow(topic_id)
                await self._use(topic_id)
            await self._delete(topic_id)
            await pause(0.0, CALM_SECONDS)

    async def _create(self, partitions: int) -> UUID | None:
        """Create the topic, and return its id once a broker names it. None if the run is over."""
        name, is_decided = CHURNED, False
        while not self._client.cluster.is_calm:
            try:
                if not await create(self._client, name, partitions) and is_decided:
                    self._promises.violated(f"{name} exists, and was deleted before")
                await self._client.learn(name)
            except RetryError:
                is_decided = False
                await pause(0.1, 0.5)
                continue
            found: UUID | None = self._client.topic_ids.get(name)
            if found is not None and found not in self._gone:
                return found
            is_decided = False
            await pause(0.1, 0.5)
        return None

    async def _use(self, topic_id: UUID) -> None:
        """Write to each partition, and read everything back."""
        client = self._client
        for partition in range(client.counts.get(CHURNED, 0)):
            await self._write(topic_id, partition)
            position = 0
            while position < self._promises.ends.get((topic_id, partition), 0):
                position = await self._read(topic_id, partition, position)
                if client.cluster.is_calm:
                    return

    async def _write(self, topic_id: UUID, partition: int) -> None:
        """Send a batch once or twice. It may be stored although that is not known."""
        client = self._client
        at = (topic_id, partition)
        self._batches += 1
        payload = f"batch {self._batches} of {at}".encode()
        sent = Sent(0, self._batches, at, payload, runtime.chance().randint(1, 3))
        try:
            code, offset = await client.produce(CHURNED, topic_id, partition, batch_of(sent))
        except RetryError:
            await pause(0.1, 0.5)
            return
        if code == ErrorCode.NONE:
            for each in range(offset, offset + sent.records):
                self._promises.checker.saw(at, each, payload)
            self._promises.has_reached(at, offset + sent.records)
            return
        if code not in MOVED:
            self._promises.unexpected(f"produce to {at}", code)
        client.forget(CHURNED, partition)
        await pause(0.1, 0.5)

    async def _read(self, topic_id: UUID, partition: int, position: int) -> int:
        client = self._client
        try:
            code, records = await client.fetch(CHURNED, topic_id, partition, position)
        except RetryError:
            await pause(0.1, 0.5)
            return position
        if code == ErrorCode.NONE:
            return self._promises.was_read((topic_id, partition), position, records)
        if code not in MOVED:
            self._promises.unexpected(f"fetch of {CHURNED}-{partition} from {position}", code)
        client.forget(CHURNED, partition)
        await pause(0.1, 0.5)
        return position

    async def _grow(self, topic_id: UUID) -> None:
        client, request = self._client, CREATE_PARTITIONS.Request
        count = client.counts[CHURNED] + runtime.chance().randint(1, 2)
        topic = request.Topic(name=CHURNED, count=count, assignments=None)
        body = request(topics=[topic], timeout_ms=4_000)
        is_decided = False
        while not client.cluster.is_calm:
            try:
                row = (await client.ask(client.any_broker(), CREATE_PARTITIONS, 3, body)).results[0]
                done = row.error_code == ErrorCode.NONE
                if not done and (row.error_code != ErrorCode.INVALID_PARTITIONS or is_decided):
                    _refuse(client, f"grow {CHURNED}", row.error_code)
                await client.learn(CHURNED)
            except RetryError:
                is_decided = False
                await pause(0.1, 0.5)
                continue
            if client.topic_ids.get(CHURNED) == topic_id and client.counts[CHURNED] == count:
                client.cluster.report.note("topic grown")
                return

    async def _delete(self, topic_id: UUID) -> None:
        """Delete the topic. A broker that has not read of it yet says that it is unknown."""
        client, request = self._client, DELETE_TOPICS.Request
        body = request(topics=[request.Topic(topic_id=topic_id)], timeout_ms=4_000)
        is_decided = True
        while not client.cluster.is_calm:
            try:
                answer = await client.ask(client.any_broker(), DELETE_TOPICS, 6, body)
            except RetryError:
                is_decided = False
                await pause(0.1, 0.5)
                continue
            code = answer.responses[0].error_code
            if code == ErrorCode.NONE or (code == ErrorCode.UNKNOWN_TOPIC_ID and not is_decided):
                break
            if code not in _UNDECIDED and code not in MOVED:
                self._promises.unexpected(f"delete {CHURNED}", code)
            is_decided = code == ErrorCode.UNKNOWN_TOPIC_ID and is_decided
            await pause(0.1, 0.5)
        self._gone.add(topic_id)
        client.topic_ids.pop(CHURNED, None)
        client.cluster.report.note("topic deleted")
