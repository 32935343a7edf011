"""Bad frames, mutated from real traffic: good clients do not notice, and nothing grows.

The seed is printed with a failure and can be given with NEVE_FUZZ_SEED. What bounds the state that
valid but unwanted requests leave behind is set small here; in production it is `cluster.*.max` for
topics, `groups.max`, `group.*` and `offsets.*` for groups, `producers.per.partition.max`,
`fetch.sessions.max`, and the bytes of buffers and caches.
"""

from __future__ import annotations

import os
import random
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from neve.protocol.messages import APIS
from neve.protocol.messages.metadata import METADATA
from soak.fuzz_run import GoodClients, Sender, check_good_clients, sending
from soak.mutations import Fuzz
from soak.recorded_traffic import (
    TOPICS,
    Corpus,
    Recorder,
    built_frames,
    let_clients_talk,
    merged,
    versions_in,
)
from soak.wire import Wire
from support.brokers import RunningBroker, start_broker

SAMPLE_FRAMES, SOAK_FRAMES = 20_000, 1_000_000
FRAMES_OF_EACH_API_MIN = 1_000
WARM_UP_SHARE = 0.3
GROWTH_MAX = 0.10
# So few frames do not fill every cache: what is allowed for them would not show a small leak.
SAMPLE_GROWTH_MAX = 0.25
GOOD_ANSWER_SECONDS_MAX = 15.0
LIMITS = {
    "cluster_partitions_max": 60,
    "cluster_topic_partitions_max": 20,
    "cluster_purge_delay_ms": 2_000,
    "maintenance_gc_interval_ms": 1_000,
    "groups_max": 50,
    "groups_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
    "group_metadata_max_bytes": 64 * 1024,
    "producers_per_partition_max": 50,
    "fetch_sessions_max": 50,
    "fetch_session_evict_ms": 1_000,
    "fetch_catchup_bytes": 4 << 20,
    "tail_cache_bytes": 512 << 10,
    "wal_tail_objects": 64,
    "index_cache_memory_bytes": 1 << 20,
    "wal_buffer_bytes": 4 << 20,
    "segment_bytes": 1 << 20,
    "broker_request_bytes_max": 1 << 20,
    "broker_receive_pool_bytes": 2 << 20,
    "store_folder_fsync": False,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Corpus]]:
    """A broker, and what real clients sent to it."""
    folder = tmp_path_factory.mktemp("fuzz")
    with Recorder() as recorder:
        advertised = f"127.0.0.1:{recorder.port}"
        running = start_broker(
            folder / "bucket", folder / "log", broker_advertise=advertised, **LIMITS
        )
        try:
            recorder.record(running.port)
            let_clients_talk(advertised)
            recorded = recorder.corpus()
            assert len(recorded) >= 20, sorted(recorded)
            built = built_frames(random.Random(1), topic_ids(running))
            yield running, merged([recorded, built])
        finally:
            running.kill()


def topic_ids(running: RunningBroker) -> list[bytes]:
    asked = [METADATA.Request.Topic(name=name) for name in TOPICS]
    with Wire(running.port, "fuzz") as wire:
        answer = wire.call(METADATA, 12, METADATA.Request(topics=asked))
    return [topic.topic_id for topic in answer.topics]


def resident_bytes(running: RunningBroker) -> int:
    pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def counted(running: RunningBroker) -> dict[str, float]:
    """Requests answered, and connections closed by the broker, by why."""
    with urllib.request.urlopen(f"http://{running.http}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {"answered": 0}
    for family in text_string_to_metric_families(text):
        for row in family.samples:
            if row.name == "neve_requests_total":
                found["answered"] += row.value
            elif row.name == "neve_connections_closed_total":
                found[row.labels["reason"]] = row.value
    return found


def seed_of_run() -> int:
    return int(os.environ.get("NEVE_FUZZ_SEED", "0")) or time.time_ns() % 10**9


def fuzzed(running: RunningBroker, corpus: Corpus, frames: int, growth_max: float) -> Sender:
    """Send them, and check all that holds for any number."""
    seed = seed_of_run()
    with (
        GoodClients(running.bootstrap, seed) as good,
        sending(running.port, Fuzz(corpus, seed), seed) as sender,
    ):
        before = counted(running)
        sender.send(int(frames * WARM_UP_SHARE))
        warm = resident_bytes(running)
        sender.send(frames - sender.tally.frames)
        after, end = counted(running), resident_bytes(running)
        good.stop()
    print(f"seed {seed}, {sender.tally}, memory {warm >> 10} to {end >> 10} KiB, {after}")
    print(f"good client: {len(good.sent)} records, slowest {good.slowest_seconds:.2f} s")
    assert running.process.poll() is None, running.log
    assert "Traceback" not in running.log, running.log
    assert "handler-failed" not in after, running.log
    assert "never awaited" not in running.log
    check_good_clients(good)
    assert good.slowest_seconds < GOOD_ANSWER_SECONDS_MAX
    assert end < warm * (1 + growth_max), f"memory grew from {warm} to {end} bytes"
    handled = after["answered"] - before["answered"] + after.get("bad-request", 0)
    assert handled > frames * 0.85, "most frames were not looked at"
    return sender


def test_the_corpus_has_every_api_in_every_version(broker: tuple[RunningBroker, Corpus]) -> None:
    _, corpus = broker
    every = {
        (key, version)
        for key, api in APIS.items()
        for version in range(api.min_version, api.max_version + 1)
    }
    assert every <= set(versions_in(corpus))


def test_the_same_seed_gives_the_same_frames(broker: tuple[RunningBroker, Corpus]) -> None:
    _, corpus = broker
    one, two, other = Fuzz(corpus, 5), Fuzz(corpus, 5), Fuzz(corpus, 6)
    frames = [one.next() for _ in range(500)]
    assert frames == [two.next() for _ in range(500)]
    assert frames != [other.next() for _ in range(500)]


@pytest.mark.slow
def test_a_sample_of_bad_frames(broker: tuple[RunningBroker, Corpus]) -> None:
    running, corpus = broker
    fuzzed(running, corpus, SAMPLE_FRAMES, SAMPLE_GROWTH_MAX)


@pytest.mark.soak
def test_a_million_bad_frames(broker: tuple[RunningBroker, Corpus]) -> None:
    running, corpus = broker
    sender = fuzzed(running, corpus, SOAK_FRAMES, GROWTH_MAX)
    assert sender.tally.frames >= SOAK_FRAMES
    assert min(sender.tally.apis[key] for key in APIS) >= FRAMES_OF_EACH_API_MIN
