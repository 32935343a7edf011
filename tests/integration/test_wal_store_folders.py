"""Two brokers as processes, each with its WAL in a folder of its own, and commands beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import neve
from neve.bucket.abandon import OFFSETS_LEAPT
from neve.errors import InvalidError, StoreFailedError
from support.brokers import RunningBroker, start_broker

pytestmark = pytest.mark.slow
SECONDS = 60
TOPIC, PARTITIONS = "t", 4


class Bucket:
    """The bucket and the WAL stores `a` and `b`, each a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.main = path / "main"
        self.wal_store = f"a={path / 'a'},b={path / 'b'}"

    def broker(self, rack: str, node_id: int) -> RunningBroker:
        log = self.path / f"broker-{node_id}.log"
        return start_broker(
            self.main,
            log,
            node_id=node_id,
            broker_rack=rack,
            wal_store=self.wal_store,
            cluster_session_ms=3_000,
            cluster_heartbeat_ms=500,
            maintenance_interval_ms=500,
        )

    def run(self, *words: str, code: int = 0, known: bool = True) -> str:
        """Run a command, check its exit code, and return what it printed."""
        command = [sys.executable, "-m", "neve.cli", *words]
        command += ["--set", f"wal.store={self.wal_store}"] if known else []
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, env=_clean()
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def values(self) -> dict[int, list[str]]:
        """All values by partition, as a reader without a broker finds them."""
        found: dict[int, list[str]] = {at: [] for at in range(PARTITIONS)}
        with neve.open(self.main, settings={"wal.store": self.wal_store}) as bucket:
            for record in bucket.read(TOPIC):
                found[record.partition].append((record.value or b"").decode())
        return found


def _clean() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("NEVE_")}


def produce(broker: RunningBroker, partition: int, value: str) -> int:
    """Produce one record with acks=all, and return its offset."""
    done: list[Any] = []
    settings = {"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0}
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": SECONDS * 1000})
    producer.produce(TOPIC, value, partition=partition, on_delivery=lambda *said: done.append(said))
    assert producer.flush(SECONDS) == 0
    ((error, message),) = done
    assert error is None, error
    return int(message.offset())


def test_brokers_with_a_folder_each_for_their_wal(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    one = bucket.broker("a", 1)
    two = bucket.broker("b", 2)
    try:
        admin = AdminClient({"bootstrap.servers": two.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
        written = {at: [f"{at}-{number}" for number in range(3)] for at in range(PARTITIONS)}
        for partition, values in written.items():
            assert [produce(one, partition, value) for value in values] == [0, 1, 2]
        assert not (bucket.main / "wal").exists()
        assert (tmp_path / "a" / "wal").exists()
        assert (tmp_path / "b" / "wal").exists()
        assert bucket.values() == written
        bucket.run("storage", "verify", str(bucket.main), "--settle-seconds", "0")

        # Without the setting it is said what is missing, and nothing is read as empty.
        with (
            neve.open(bucket.main) as unaware,
            pytest.raises(InvalidError, match=r"which wal\.store does not name"),
        ):
            list(unaware.read(TOPIC))
        said = bucket.run(
            "storage", "dump", str(bucket.main), "--topic", TOPIC, code=1, known=False
        )
        assert "which wal.store does not name" in said

        # Each of the brokers takes over from the folder of the other.
        one.kill()
        for partition in range(PARTITIONS):
            written[partition].append("after the failover")
            assert produce(two, partition, "after the failover") == 3
        two.kill()
        assert bucket.values() == written
    finally:
        one.kill()
        two.kill()


def test_a_folder_that_is_gone_for_good(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    one = bucket.broker("a", 1)
    two = bucket.broker("b", 2)
    try:
        admin = AdminClient({"bootstrap.servers": two.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
        for partition in range(PARTITIONS):
            produce(one, partition, f"{partition}")
        one.kill()
        two.kill()
        shutil.rmtree(tmp_path / "a")
        with (
            neve.open(bucket.main, settings={"wal.store": bucket.wal_store}) as opened,
            pytest.raises(StoreFailedError, match="is not the store in which stream"),
        ):
            list(opened.read(TOPIC))

        about = ("cluster", "abandon-wal", "--store", str(bucket.main), "--store-name", "a")
        assert "--accept-loss" in bucket.run(*about, code=1)
        planned = json.loads(bucket.run(*about, "--dry-run", "--json"))
        assert not planned["abandoned"]
        assert planned["live_nodes"] == [1]
        lost = {row["partition"]: row["lost"] for row in planned["partitions"]}
        assert len(lost) == PARTITIONS // 2
        leap = {"first": 0, "end": None, "continues_at": OFFSETS_LEAPT}
        assert all(rows == [leap] for rows in lost.values())
        assert "from offset 0 on, end not known; the log continues at" in bucket.run(
            *about, "--accept-loss"
        )
        assert "streams lie in: b" in bucket.run(*about, "--dry-run", code=1)

        about = ("storage", "verify", str(bucket.main), "--settle-seconds", "0", "--json")
        report = json.loads(bucket.run(*about))
        found = {row["severity"] for row in report["findings"]}
        assert "skipped" in found
        assert not found & {"damage", "gap", "orphan", "rule"}
        kept = {at: [] if at in lost else [f"{at}"] for at in range(PARTITIONS)}
        assert bucket.values() == kept

        # Both start again, the first with a new folder of the same name.
        one, two = bucket.broker("a", 1), bucket.broker("b", 2)
        for partition in range(PARTITIONS):
            next_offset = OFFSETS_LEAPT if partition in lost else len(kept[partition])
            assert produce(two, partition, "new") == next_offset
            kept[partition].append("new")
        assert bucket.values() == kept
    finally:
        one.kill()
        two.kill()
