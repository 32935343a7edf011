"""A full disk, revoked credentials, a bucket that is gone: the broker says so and ends with 4.

Whatever it acknowledged is in the bucket, where there still is one; whatever it could not write is
refused with an error that a client tries again after.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import neve
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.records.reference import Record, build_batch
from soak.wire import Wire
from support.brokers import RunningBroker, start_broker
from support.hostile import fetch, produce
from support.servers import S3Server, moto_s3  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow
STORE_GONE = 4
ENDS_SECONDS = 20
PROGRAM = Path(__file__).parents[1] / "support" / "failing_broker.py"
# What a client takes for "not now": it looks for the leader again, and sends again.
RETRIED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@contextlib.contextmanager
def failing_broker(folder: Path) -> Iterator[tuple[RunningBroker, Callable[[str], None]]]:
    """A broker on a folder, and how to make that fail."""
    control = folder / "control"
    log = folder / "log"
    command = [sys.executable, str(PROGRAM), str(control), "serve", "--store", folder / "bucket"]
    command += ["--listen", "127.0.0.1:0", "--set", "http.listen=127.0.0.1:0"]
    command += ["--set", "store.denied.grace.ms=500"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield RunningBroker(process, log, line), control.write_text
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


class Writer(threading.Thread):
    """Produces one record after the other until it cannot; knows what it was told."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(broker.port, "writer", timeout_seconds=30)
        made = CREATE_TOPICS.Request
        asked = made.Topic(name="t", num_partitions=1, replication_factor=1)
        answer = self._wire.call(CREATE_TOPICS, 5, made(topics=[asked], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0
        self.pause_seconds = 0.005
        self.acknowledged: list[bytes] = []
        self.refusals: list[ErrorCode] = []

    def run(self) -> None:
        with self._wire, contextlib.suppress(OSError):
            while not self.refusals:
                value = b"value %d" % len(self.acknowledged)
                row = produce(self._wire, "t", build_batch([Record(0, 1_000, None, value)]))
                if row.error_code:
                    self.refusals.append(ErrorCode(row.error_code))
                else:
                    self.acknowledged.append(value)
                time.sleep(self.pause_seconds)

    def has_written(self, count: int) -> None:
        until = time.monotonic() + 20
        while len(self.acknowledged) < count:
            assert time.monotonic() < until
            time.sleep(0.01)


def ended(broker: RunningBroker) -> str:
    """Wait for the broker to end by itself; the last line of its log."""
    code = broker.process.wait(ENDS_SECONDS)
    assert code == STORE_GONE, broker.log
    assert "Traceback" not in broker.log
    last = broker.log.splitlines()[-1]
    assert "the broker stops because the store does not accept writes" in last
    return last


def readable(bucket: str, **settings: object) -> list[bytes]:
    with neve.open(bucket, settings=settings) as opened:
        return [record.value or b"" for record in opened.read("t", 0)]


@pytest.mark.parametrize(
    ("what", "words"), [("full", "No space left"), ("denied", "the access key was revoked")]
)
def test_a_store_that_takes_no_more_ends_the_broker(tmp_path: Path, what: str, words: str) -> None:
    with failing_broker(tmp_path) as (broker, make_it):
        writer = Writer(broker)
        writer.start()
        writer.has_written(20)
        make_it(what)
        assert words in ended(broker)
        writer.join(20)
        assert set(writer.refusals) <= RETRIED
    # All that was acknowledged is there, and a start on the mended store goes on behind it.
    found = readable(str(tmp_path / "bucket"))
    assert found[: len(writer.acknowledged)] == writer.acknowledged
    assert len(found) <= len(writer.acknowledged) + 1
    again = start_broker(tmp_path / "bucket", tmp_path / "log-2")
    try:
        with Wire(again.port, "reader") as wire:
            row = produce(wire, "t", build_batch([Record(0, 1_000, None, b"after")]))
            assert (row.error_code, row.base_offset) == (0, len(found))
            assert fetch(wire, "t", 0, max_wait_ms=2_000).high_watermark == len(found) + 1
        assert again.stop() == 0
    finally:
        if again.process.poll() is None:
            again.kill()


@pytest.mark.parametrize("below", ["", "wal"])
def test_a_folder_that_is_removed_under_the_broker_ends_it(tmp_path: Path, below: str) -> None:
    broker = start_broker(tmp_path / "bucket", tmp_path / "log")
    try:
        writer = Writer(broker)
        writer.start()
        writer.has_written(20)
        writer.pause_seconds = 0.1
        gone = tmp_path / "bucket" / below
        while gone.exists():  # a write may come between
            shutil.rmtree(gone, ignore_errors=True)
        told = len(writer.acknowledged)
        assert "was removed while it was in use" in ended(broker)
        writer.join(20)
        # The one that was on its way when the folder went may have been told before.
        assert len(writer.acknowledged) <= told + 1
    finally:
        if broker.process.poll() is None:
            broker.kill()
        if broker.process.stdout is not None:
            broker.process.stdout.close()


def test_a_bucket_that_is_deleted_under_the_broker_ends_it(
    tmp_path: Path,
    moto_s3: S3Server,  # noqa: F811
) -> None:
    name = moto_s3.new_bucket()
    settings = moto_s3.settings()
    broker = start_broker(
        f"s3://{name}/some/prefix",
        tmp_path / "log",
        store_endpoint=settings.endpoint,
        store_region=settings.region,
        wal_linger_ms=0,
    )
    try:
        writer = Writer(broker)
        writer.start()
        writer.has_written(5)
        writer.pause_seconds = 1.0  # or it makes objects as quickly as they are deleted
        client = moto_s3.client()
        with contextlib.closing(client):
            while True:
                for row in client.list_objects_v2(Bucket=name).get("Contents", ()):
                    client.delete_object(Bucket=name, Key=row["Key"])
                with contextlib.suppress(client.exceptions.ClientError):
                    client.delete_bucket(Bucket=name)
                    break
        assert "the bucket does not exist" in ended(broker)
        writer.join(20)
        assert set(writer.refusals) <= RETRIED
    finally:
        if broker.process.poll() is None:
            broker.kill()
        if broker.process.stdout is not None:
            broker.process.stdout.close()
