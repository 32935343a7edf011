"""librdkafka's mock cluster, as a reference for figures of a broker.

librdkafka's own tests use it. It keeps a few megabytes of each partition in memory and writes
nothing to disk, so its figures are an upper bound for a broker. A topic is created with four
partitions when it is first requested. There is no admin API.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from neve.bench.kafka.measure import BenchError
from neve.bench.kafka.topics import ANSWER_SECONDS

BROKERS_MAX = 16


@contextlib.contextmanager
def cluster(brokers: int = 1) -> Iterator[str]:
    """Run a mock cluster inside this process. Yields its bootstrap servers."""
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
