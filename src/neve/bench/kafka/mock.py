"""librdkafka's own mock cluster, which figures are compared with.

It keeps a few megabytes of each partition in memory and writes nothing, so it is what a broker
could reach at best; it is what librdkafka tests itself with. Topics come into being when they are
asked for, with four partitions; nothing can be administered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from neve.bench.kafka.measure import BenchError
from neve.bench.kafka.topics import ANSWER_SECONDS

BROKERS_MAX = 16


@contextlib.contextmanager
def cluster(brokers: int = 1) -> Iterator[str]:
    """A mock cluster inside this process, for as long as it is wanted; where it listens."""
    from confluent_kafka.admin import AdminClient

    if not 1 <= brokers <= BROKERS_MAX:
        raise BenchError(f"a mock cluster has 1 to {BROKERS_MAX} brokers, not {brokers}")
    owner = AdminClient(
        {"test.mock.num.brokers": brokers, "bootstrap.servers": "mock", "log_level": 0}
    )
    found = owner.list_topics(timeout=ANSWER_SECONDS).brokers
    try:
        yield ",".join(f"{each.host}:{each.port}" for _, each in sorted(found.items()))
    finally:
        del owner  # the cluster lives as long as its client
