"""Requests as clients really send them, recorded between the clients and a broker.

A proxy on loopback stands where the broker says it is, passes all bytes on and keeps every whole
request. Clients do not use every API in every version; `built_frames` makes up for that with
messages of plausible content from the descriptions themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import select
import socket
import struct
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient

from neve.protocol.compiler import AnyApi
from neve.protocol.frames import request_frame
from neve.protocol.messages import APIS
from neve.protocol.schema import Field, Struct
from neve.records.reference import Record, build_batch

TOPICS = ("fuzz-a", "fuzz-b", "fuzz-c")
GROUPS = ("fuzz-group", "fuzz-group-2")
KEPT_MAX = 40  # frames of one API in one version
_PIECE_BYTES = 1 << 16

Corpus = dict[int, list[bytes]]
"""Whole frames by API key."""


class Recorder:
    """A proxy in a thread of its own. Use as `with`; `frames` grows while clients talk."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._broker_port = 0
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._partial: dict[socket.socket, bytearray] = {}
        self._kept: dict[tuple[int, int], dict[bytes, None]] = defaultdict(dict)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def record(self, broker_port: int) -> None:
        """Pass everything on to the broker from now on."""
        self._broker_port = broker_port
        self._thread.start()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for each in (self._listener, *self._pairs):
            each.close()

    def corpus(self) -> Corpus:
        found: Corpus = defaultdict(list)
        for (api_key, _), frames in sorted(self._kept.items()):
            found[api_key] += frames
        return found

    def _run(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._listener, *self._pairs], [], [], 0.05)
            for each in ready:
                if each is self._listener:
                    self._accept()
                elif each in self._pairs:
                    with contextlib.suppress(OSError):
                        if self._pass_on(each):
                            continue
                    self._drop(each)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            broker = socket.create_connection(("127.0.0.1", self._broker_port))
        except OSError:
            client.close()
            return
        self._pairs[client], self._pairs[broker] = broker, client
        self._partial[client] = bytearray()

    def _pass_on(self, source: socket.socket) -> bool:
        data = source.recv(_PIECE_BYTES)
        if data:
            self._pairs[source].sendall(data)
            if source in self._partial:
                self._cut(self._partial[source], data)
        return bool(data)

    def _cut(self, partial: bytearray, data: bytes) -> None:
        partial += data
        while len(partial) >= 8:
            length, api_key, version = struct.unpack_from(">ihh", partial)
            if len(partial) < 4 + length:
                return
            kept = self._kept[api_key, version]
            if len(kept) < KEPT_MAX:
                kept[bytes(partial[: 4 + length])] = None
            del partial[: 4 + length]

    def _drop(self, one: socket.socket) -> None:
        for each in (one, self._pairs.get(one)):
            if each is not None and self._pairs.pop(each, None) is not None:
                self._partial.pop(each, None)
                each.close()


# -- the clients -------------------------------------------------------------------------------


def let_clients_talk(bootstrap: str) -> None:
    """Produce, consume and administer with every client there is, side by side."""
    confluent_admin(bootstrap)
    talks: list[Callable[[str], None]] = [
        confluent_records,
        confluent_groups,
        lambda at: asyncio.run(aiokafka_talk(at)),
        kafka_python_talk,
    ]
    threads = [threading.Thread(target=talk, args=(bootstrap,)) for talk in talks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def confluent_admin(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = list(admin.create_topics([NewTopic(name, 2) for name in TOPICS]).values())
    for future in futures:
        future.result()
    about = ConfigResource(ResourceType.TOPIC, TOPICS[0])
    changed = ConfigResource(
        ResourceType.TOPIC,
        TOPICS[1],
        incremental_configs=[
            ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    calls: list[Any] = [
        admin.describe_configs([about]),
        admin.incremental_alter_configs([changed]),
        admin.create_partitions([NewPartitions(TOPICS[2], 3)]),
        admin.describe_cluster(),
        admin.list_consumer_groups(),
    ]
    for call in calls:
        for future in call.values() if isinstance(call, dict) else [call]:
            future.result()


def confluent_records(bootstrap: str) -> None:
    for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": codec in ("none", "lz4"),
                "acks": "1" if codec == "gzip" else "all",
            }
        )
        for number in range(20):
            producer.produce(TOPICS[0], b"value %d" % number * 20, key=b"%d" % number)
        producer.flush(20)


def confluent_groups(bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUPS[0],
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe([TOPICS[0]])
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(TOPICS[0], 0, 1)], asynchronous=False)
    consumer.offsets_for_times([TopicPartition(TOPICS[0], 0, 1)], timeout=5)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.describe_consumer_groups([GROUPS[0]])[GROUPS[0]].result()
    asked = ConsumerGroupTopicPartitions(GROUPS[0])
    admin.list_consumer_group_offsets([asked])[GROUPS[0]].result()


async def aiokafka_talk(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    for number in range(10):
        await producer.send_and_wait(TOPICS[1], b"%d" % number)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        TOPICS[1], bootstrap_servers=bootstrap, group_id=GROUPS[1], auto_offset_reset="earliest"
    )
    await consumer.start()
    await consumer.getmany(timeout_ms=500)
    await consumer.commit()
    await consumer.stop()


def kafka_python_talk(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.describe_topics(list(TOPICS))
        admin.describe_topic_partitions(list(TOPICS), 2)
        admin.describe_cluster()
        admin.create_topics({"fuzz-d": {"num_partitions": 2, "replication_factor": 1}})
        admin.create_partitions({"fuzz-d": 3})
        admin.delete_topics(["fuzz-d"])
    finally:
        admin.close()


# -- frames of our own ---------------------------------------------------------------------------


def built_frames(chance: random.Random, topic_ids: Sequence[bytes]) -> Corpus:
    """Plausible requests of every API in every version it has."""
    corpus: Corpus = {}
    for key, api in sorted(APIS.items()):
        frames = corpus[key] = []
        for version in range(api.min_version, api.max_version + 1):
            for _ in range(3):
                request = _plausible(api, version, chance, topic_ids)
                frames.append(frame_of(api, version, request))
    return corpus


def frame_of(api: AnyApi, version: int, request: Any, client_id: str | None = "fuzz") -> bytes:
    parts = request_frame(api, version, 7, client_id, api.Request.encode(request, version))
    return b"".join(bytes(part) for part in parts)


def _plausible(api: AnyApi, version: int, chance: random.Random, topic_ids: Sequence[bytes]) -> Any:
    def struct_of(struct: Struct, made: Any) -> Any:
        present = [each for each in struct.fields if version in each.versions]
        return made(**{each.name: value_of(each) for each in present})

    def value_of(field: Field) -> Any:
        if version in field.nullable and chance.random() < 0.1:
            return None
        if field.array:
            return [element_of(field) for _ in range(chance.choice((1, 1, 2)))]
        return element_of(field)

    def element_of(field: Field) -> Any:
        if field.struct is not None:
            return struct_of(field.struct, getattr(api.Request, field.struct.name))
        return _scalar(field, chance, topic_ids)

    return struct_of(api.schema.request, api.Request)


def _scalar(field: Field, chance: random.Random, topic_ids: Sequence[bytes]) -> Any:
    name = field.name
    if field.type == "uuid":
        return chance.choice(topic_ids)
    if field.type == "records":
        return batch_of(chance)
    if field.type == "string":
        if name in ("transactional_id", "group_instance_id"):
            return None if chance.random() < 0.9 else "static"
        if "group" in name or name == "key":
            return chance.choice(GROUPS)
        return chance.choice((*TOPICS, "consumer", "range", "retention.ms", "1"))
    if field.type == "bytes":
        return chance.randbytes(chance.randrange(20))
    if field.type == "bool":
        return chance.random() < 0.5
    if name == "acks":
        return chance.choice((-1, 1, -1, 0))
    if name.endswith("timeout_ms") or name == "max_wait_ms":
        return chance.choice((10, 100, 7_000))
    return chance.choice((-1, 0, 0, 1, 2, 100)) if field.type != "float64" else 1.0


def batch_of(chance: random.Random, time_ms: int = 1_700_000_000_000) -> bytes:
    """A good batch of a few records."""
    count = chance.randrange(1, 5)
    records = [Record(at, time_ms + at, None, chance.randbytes(30)) for at in range(count)]
    return build_batch(records, codec=chance.choice((0, 0, 1, 3, 4)))


def merged(corpora: Sequence[Corpus]) -> Corpus:
    """All frames of all of them, for every API that Neve has."""
    found: Corpus = {}
    for key in sorted(APIS):
        found[key] = [frame for corpus in corpora for frame in corpus.get(key, ())]
        assert found[key], f"there is no frame of API {key}"
    return found


def versions_in(corpus: Corpus) -> Iterator[tuple[int, int]]:
    """Every API and version that has a frame."""
    for key, frames in corpus.items():
        yield from {(key, struct.unpack_from(">h", frame, 6)[0]): None for frame in frames}
