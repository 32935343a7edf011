"""The topic of a load: found or created, and deleted afterwards if it is temporary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from neve import runtime
from neve.bench.kafka.measure import BenchError

ANSWER_SECONDS = 10.0
SETTLE_SECONDS = 5.0
"""How long to wait until records without acknowledgement are visible."""

Config = Mapping[str, Any]


@contextlib.contextmanager
def topic(config: Config, name: str | None, partitions: int) -> Iterator[str]:
    """Yield a topic with at least `partitions` partitions. Without a name, it is temporary."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(dict(config))
    chosen = name or f"neve-bench-{runtime.token(4).hex()}"
    cluster = admin.list_topics(timeout=ANSWER_SECONDS)
    may_administer = cluster.controller_id in cluster.brokers  # librdkafka's mock has none
    if chosen not in cluster.topics and may_administer:
        _create(admin, chosen, partitions)
    _wait_for(admin, chosen, partitions)
    try:
        yield chosen
    finally:
        if name is None and may_administer:
            for future in admin.delete_topics([chosen]).values():
                with contextlib.suppress(Exception):  # a leftover topic does not affect the result
                    future.result()


def _create(admin: Any, name: str, partitions: int) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    try:
        admin.create_topics([NewTopic(name, partitions, -1)])[name].result()
    except KafkaException as failure:
        error = failure.args[0]
        # Another load may have created it at the same time.
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise BenchError(f"topic {name} cannot be created: {error.str()}") from None


def _wait_for(admin: Any, name: str, partitions: int) -> None:
    """Wait until all partitions have leaders. The request may auto-create the topic."""
    watch_until = runtime.monotonic() + ANSWER_SECONDS
    while True:
        found = admin.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
        led = [each for each in found.partitions.values() if each.leader >= 0]
        if found.error is None and 0 < len(found.partitions) < partitions:
            raise BenchError(
                f"topic {name} has {len(found.partitions)} partitions, not {partitions}: lower "
                "--partitions, or use another topic"
            )
        if found.error is None and led and len(led) == len(found.partitions):
            return
        if runtime.monotonic() > watch_until:
            why = found.error.str() if found.error else "some partitions have no leader"
            raise BenchError(f"topic {name} is not ready after {ANSWER_SECONDS:g} s: {why}")
        admin.poll(0.05)


def ends(config: Config, name: str, partitions: int | None = None) -> dict[int, tuple[int, int]]:
    """Return start and end offset of each partition, or of the first `partitions`."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**config, "group.id": "neve-bench"})
    try:
        found = consumer.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
        if found.error is not None:
            raise BenchError(f"topic {name}: {found.error.str()}")
        return {
            number: consumer.get_watermark_offsets(
                TopicPartition(name, number), timeout=ANSWER_SECONDS
            )
            for number in sorted(found.partitions)[:partitions]
        }
    finally:
        consumer.close()


def stored(config: Config, name: str, before: Mapping[int, tuple[int, int]], least: int) -> int:
    """Return the number of offsets added since `before`.

    Waits at most SETTLE_SECONDS until there are `least`, and then returns what there is.
    """
    given_up_at = runtime.monotonic() + SETTLE_SECONDS
    while True:
        after = ends(config, name, len(before))
        count = sum(after[number][1] - high for number, (_, high) in before.items())
        if count >= least or runtime.monotonic() > given_up_at:
            return count
