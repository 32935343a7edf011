"""`neve storage verify` after a real `kill -9`: what it leaves is no damage."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from neve.cli import main
from support.brokers import RunningBroker, start_broker

SECONDS_MAX = 60


@contextmanager
def paused(broker: RunningBroker) -> Iterator[None]:
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


def untrimmed(stream: Path) -> list[str]:
    """The WAL objects below the stream's greatest checkpoint: a roll-up is not trimmed yet."""
    numbers = [path.name for path in stream.glob("0*")]
    checkpoints = [path.name for path in stream.glob("checkpoint/0*")]
    return [name for name in numbers if checkpoints and name < max(checkpoints)]


def killed_amid_a_rollup(folder: Path, log: Path) -> None:
    """Produce until a roll-up is written and what it sums up is still there, and kill then."""
    broker = start_broker(
        folder, log, wal_tail_objects=40, wal_linger_ms=0, store_folder_fsync=False
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    stream = folder / "wal" / f"{1:020d}"
    until = time.monotonic() + SECONDS_MAX
    try:
        while time.monotonic() < until:
            producer.produce("t", b"x" * 1000)
            producer.poll(0)
            if untrimmed(stream):
                with paused(broker):
                    if untrimmed(stream):
                        broker.kill()
                        return
        raise AssertionError("no roll-up was caught")
    finally:
        broker.kill()
        producer.purge()


def test_what_a_killed_broker_leaves_is_not_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bucket"
    killed_amid_a_rollup(folder, tmp_path / "log")
    quick = [str(folder), "--no-probe", "--settle-seconds", "0"]
    assert main(["storage", "verify", *quick]) == 0
    told = capsys.readouterr().out
    assert "garbage: " in told
    assert "harmless; `neve storage verify --repair` removes " in told
    assert told.endswith("no problems\n")

    assert main(["storage", "verify", *quick, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert report["counts"]["garbage"] == len(report["findings"]) > 0
    assert report["counts"]["garbage_bytes"] == sum(row["bytes"] for row in report["findings"])

    local = [str(folder), "--local", "--settle-seconds", "0"]
    assert main(["maintain", "verify", *local]) == 0
    assert "garbage: " in capsys.readouterr().out

    assert main(["storage", "verify", *quick, "--repair"]) == 0
    assert "repaired" in capsys.readouterr().out
    assert main(["storage", "verify", *quick]) == 0
    assert "garbage" not in capsys.readouterr().out

    lost = max((folder / "wal" / f"{1:020d}").glob("rollup/*"))
    lost.unlink()
    assert main(["storage", "verify", *quick]) == 1
