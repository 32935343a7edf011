"""Topics of a simulated cluster that are created, grown, deleted and created again.

A topic's id tells the topics of one name apart, so a record of an earlier one never counts for a
later one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from simulation.checker import Sent
from simulation.network_clients import (
    MOVED,
    TOPIC,
    Client,
    RetryError,
    batch_of,
    broker_at,
    pause,
)
from simulation.network_promises import StalledError

CHURNED = "u"
TRIES_MAX = 400
CALM_SECONDS = 4.0
# A request without an answer may lie in a paused broker for a while, and be carried out then.
LATE_SECONDS_MAX = 60.0
_MAY_HAPPEN = MOVED - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID} | {
    ErrorCode.NOT_CONTROLLER
}


class UnchangedError(RetryError):
    """Nothing was changed, and what the broker said about it may be old."""


async def change(
    client: Client, api: Any, version: int, body: Any, code_of: Callable[[Any], int]
) -> Any:
    """Ask any broker for a change. Returns its answer: the change is made, or is refused.

    Raises RetryError if the change may still be made later. A broker that could read the cluster
    log before it answers knows every earlier change: UnchangedError is raised only if it could not.
    """
    node_id, asked_at = client.any_node(), runtime.monotonic()
    answer = await client.ask(broker_at(node_id), api, version, body)
    code = code_of(answer)
    if code in _MAY_HAPPEN:
        raise RetryError(f"{api.name}: {ErrorCode(code).name}")
    if code != ErrorCode.NONE and client.cluster.may_be_old(node_id, asked_at):
        raise UnchangedError(f"{api.name}: {ErrorCode(code).name} by a broker that may be behind")
    return answer


async def create(client: Client, name: str, partitions: int) -> bool:
    """Create a topic. Returns False if it exists, and raises RetryError if that is not known."""
    request = CREATE_TOPICS.Request
    topic = request.Topic(name=name, num_partitions=partitions, replication_factor=1)
    body = request(topics=[topic], timeout_ms=4_000)
    answer = await change(client, CREATE_TOPICS, 7, body, lambda it: int(it.topics[0].error_code))
    row = answer.topics[0]
    if row.error_code == ErrorCode.NONE:
        client.topic_ids[name] = row.topic_id
        return True
    if row.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
        client.promises.unexpected(f"create {name}", row.error_code)
    return False


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

    def __init__(self, client: Client, name: str = CHURNED, payload_bytes: int = 0) -> None:
        self._client = client
        self._promises = client.promises
        self._name = name
        self._payload_bytes = payload_bytes  # at least
        self._gone: set[UUID] = set()  # ids of deleted topics, for look-ups
        self._count = 0  # of partitions, when the topic was created
        self._batches = 0
        self._decided_at = float("-inf")  # from when on no request without an answer can land

    async def run(self) -> None:
        cluster = self._client.cluster
        while not cluster.is_calm:
            topic_id = await self.create(runtime.chance().randint(1, 3))
            if topic_id is None:
                return
            await self.use(topic_id)
            if runtime.chance().random() < 0.7:
                await self._grow(topic_id)
                await self.use(topic_id)
            await self.delete(topic_id)
            await pause(0.0, CALM_SECONDS)

    @property
    def _is_decided(self) -> bool:
        """Whether all changes of topics of this name have been made, or never will be."""
        return runtime.monotonic() >= self._decided_at

    async def _wait_after(self, error: RetryError) -> None:
        if not isinstance(error, UnchangedError):
            self._decided_at = runtime.monotonic() + LATE_SECONDS_MAX
        await pause(0.1, 0.5)

    async def create(self, partitions: int) -> UUID | None:
        """Create the topic, and return its id once a broker names it. None if the run is over."""
        client, name = self._client, self._name
        while not client.cluster.is_calm:
            try:
                if not await create(client, name, partitions) and self._is_decided:
                    self._promises.violated(f"{name} exists, and was deleted before")
                break
            except RetryError as error:
                await self._wait_after(error)
        while not client.cluster.is_calm:
            with contextlib.suppress(RetryError):
                await client.learn(name)
                found: UUID | None = client.topic_ids.get(name)
                if found is not None and found not in self._gone:
                    self._count = client.counts[name]
                    client.cluster.report.note("topic created")
                    return found
            await pause(0.1, 0.5)
        return None

    async def use(self, topic_id: UUID) -> None:
        """Write to each partition, and read everything back."""
        client = self._client
        for partition in range(client.counts.get(self._name, 0)):
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
        payload = f"batch {self._batches} of {at}".encode().ljust(self._payload_bytes)
        sent = Sent(0, self._batches, at, payload, runtime.chance().randint(1, 3))
        try:
            code, offset = await client.produce(self._name, topic_id, partition, batch_of(sent))
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
        client.forget(self._name, partition)
        await pause(0.1, 0.5)

    async def _read(self, topic_id: UUID, partition: int, position: int) -> int:
        client = self._client
        try:
            code, records = await client.fetch(self._name, topic_id, partition, position)
        except RetryError:
            await pause(0.1, 0.5)
            return position
        if code == ErrorCode.NONE:
            return self._promises.was_read((topic_id, partition), position, records)
        if code not in MOVED:
            self._promises.unexpected(f"fetch of {self._name}-{partition} from {position}", code)
        client.forget(self._name, partition)
        await pause(0.1, 0.5)
        return position

    async def _grow(self, topic_id: UUID) -> None:
        client, request, name = self._client, CREATE_PARTITIONS.Request, self._name
        count = self._count + runtime.chance().randint(1, 2)
        topic = request.Topic(name=name, count=count, assignments=None)
        body = request(topics=[topic], timeout_ms=4_000)
        while not client.cluster.is_calm:
            try:
                answer = await change(
                    client, CREATE_PARTITIONS, 3, body, lambda it: int(it.results[0].error_code)
                )
            except RetryError as error:
                await self._wait_after(error)
                continue
            code = answer.results[0].error_code
            has_grown = code == ErrorCode.INVALID_PARTITIONS and not self._is_decided
            if code != ErrorCode.NONE and not has_grown:
                self._promises.unexpected(f"grow {name} to {count}", code)
            break
        while not client.cluster.is_calm:
            with contextlib.suppress(RetryError):
                await client.learn(name)
                # An earlier request may have let it grow further.
                if client.topic_ids.get(name) == topic_id and client.counts[name] >= count:
                    client.cluster.report.note("topic grown")
                    return
            await pause(0.1, 0.5)

    async def delete(self, topic_id: UUID) -> None:
        """Delete the topic. It is unknown only after a request that had no answer."""
        client, request = self._client, DELETE_TOPICS.Request
        body = request(topics=[request.Topic(topic_id=topic_id)], timeout_ms=4_000)
        is_decided = True
        while not client.cluster.is_calm:
            try:
                answer = await change(
                    client, DELETE_TOPICS, 6, body, lambda it: int(it.responses[0].error_code)
                )
            except RetryError as error:
                is_decided = is_decided and isinstance(error, UnchangedError)
                await pause(0.1, 0.5)
                continue
            code = answer.responses[0].error_code
            is_gone = code == ErrorCode.UNKNOWN_TOPIC_ID and not is_decided
            if code != ErrorCode.NONE and not is_gone:
                self._promises.unexpected(f"delete {self._name}", code)
            break
        self._gone.add(topic_id)
        client.topic_ids.pop(self._name, None)
        client.cluster.report.note("topic deleted")
