"""`neve storage verify` and `skip` on a folder, beside a writer that uploads at that moment."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from neve import runtime
from neve.cli import main
from neve.log.keys import new_run_key, new_segment_key
from neve.log.manifest.records import Segment
from simulation.jobs import _upload_merged, manifest_of
from support import bucket_samples as samples
from support.bucket_samples import Writer
from support.node_world import take_over

TOPIC = "events"
SETTINGS = {"segment__bytes": 1024, "segment__ms": 200, "wal__tail__objects": 16}


class LiveWriter:
    """A node in a thread of its own that writes and tiers until it is told to stop."""

    def __init__(self, folder: Path) -> None:
        self._url = str(folder)
        self._stop = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._write()))
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(30)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    async def _write(self) -> None:
        try:
            writer = await Writer.start(self._url, chosen=samples.settings(**SETTINGS))
            await take_over(writer.node)
            while not self._stop.is_set():
                await writer.append(TOPIC, 1, 5)
                self.acknowledged += 5
                await writer.node.run_due_work()
                await writer.node.collect()
                self._started.set()
            await writer.close()
        except BaseException as error:
            self.failure = error
            self._started.set()


@contextmanager
def writing(folder: Path) -> Iterator[LiveWriter]:
    writer = LiveWriter(folder)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


async def _filled(folder: Path) -> list[Segment]:
    """A bucket with two segments in each of two partitions; those of the first."""
    writer = await Writer.start(str(folder))
    await samples.layered(writer, TOPIC, partitions=2)
    found = await writer.segments(TOPIC, 0)
    await writer.close()
    return found


async def _garbage(folder: Path) -> list[str]:
    """Half a pair, what a failed merge left, and a run that nobody added."""
    writer = await Writer.start(str(folder), node_id=7)
    topic = writer.node.cluster.state.topic(TOPIC)
    assert topic is not None
    store = writer.stack.store
    manifest = manifest_of(store, topic, 0)
    await manifest.refresh()
    one, two = (await manifest.segments())[:2]
    merged = await _upload_merged(store, topic, 0, (one, two))
    prefix = one.key[: one.key.rindex("/") + 1]
    half, run = new_segment_key(prefix, 80, 1, "index"), new_run_key(manifest.keys)
    await store.create(half, b"half a pair")
    await store.create(run, b"an abandoned run")
    await writer.close()
    return [half, run, merged.key, str(merged.index_key)]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(bytes(data))


def verified(
    capsys: pytest.CaptureFixture[str], folder: Path, *flags: str
) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    code = main(["storage", "verify", str(folder), "--json", "--settle-seconds", "3", *flags])
    return code, json.loads(capsys.readouterr().out)


def keys_of(report: dict[str, object], severity: str) -> set[str]:
    return {row["key"] for row in report["findings"] if row["severity"] == severity}  # type: ignore


def test_repair_beside_a_writer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = runtime.run(_filled(tmp_path))
    orphans = runtime.run(_garbage(tmp_path))
    (tmp_path / str(first.index_key)).unlink()
    stray, live = tmp_path / ".tmp" / "stray", tmp_path / ".tmp" / "live"
    for path in (stray, live):
        path.write_bytes(b"half written")
    os.utime(stray, (1, 1))
    with writing(tmp_path) as writer:
        code, report = verified(capsys, tmp_path)
        assert code == 1
        assert report["ok"] is False
        assert keys_of(report, "damage") == {first.index_key}
        assert keys_of(report, "orphan") == set(orphans)
        assert keys_of(report, "leftover") == {".tmp/stray"}
        assert report["repaired"] == []
        assert all((tmp_path / key).exists() for key in orphans), "looking touches nothing"

        code, report = verified(capsys, tmp_path, "--repair")
        assert code == 0
        done = {row["key"] for row in report["repaired"]}  # type: ignore[attr-defined,union-attr]
        assert done >= {first.index_key, ".tmp/stray", *orphans}
        assert not any((tmp_path / key).exists() for key in orphans)
        assert not stray.exists()
        assert live.exists()
        before = writer.acknowledged

        code, report = verified(capsys, tmp_path)
        assert (code, keys_of(report, "damage"), keys_of(report, "orphan")) == (0, set(), set())
    assert writer.acknowledged > before > 0, "the writer went on all the while"
    assert main(["storage", "dump", str(tmp_path), "--topic", TOPIC, "--partition", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 80 + writer.acknowledged


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_damaged_segment_is_not_touched_and_skip_gets_past_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = runtime.run(_filled(tmp_path))
    flip(tmp_path / second.key)
    before = contents(tmp_path)
    code, report = verified(capsys, tmp_path, "--repair")
    assert code == 1
    assert contents(tmp_path) == before
    (finding,) = report["findings"]  # type: ignore[misc]
    assert finding["key"] == second.key
    assert not finding["repairable"]
    assert main(["storage", "dump", str(tmp_path), "--topic", TOPIC, "--partition", "0"]) == 1

    command = finding["do"][finding["do"].index("neve storage skip") :].split()
    capsys.readouterr()
    assert main([word for word in command[1:] if word != "--accept-loss"]) == 1
    assert "--accept-loss" in capsys.readouterr().err
    assert main(command[1:]) == 0
    ((lost),) = finding["lost"]
    assert f"{lost['to'] - lost['from']} offsets given up" in capsys.readouterr().out

    code, report = verified(capsys, tmp_path)
    assert code == 0
    assert {row["severity"] for row in report["findings"]} == {"skipped"}  # type: ignore
    capsys.readouterr()
    assert main(["storage", "dump", str(tmp_path), "--topic", TOPIC, "--partition", "0"]) == 0
    printed = capsys.readouterr()
    offsets = [json.loads(line)["offset"] for line in printed.out.splitlines()]
    assert offsets == [*range(lost["from"]), *range(lost["to"], 80)]
    assert f"skipped {lost['to'] - lost['from']} offsets" in printed.err


def test_what_people_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = runtime.run(_filled(tmp_path))
    assert main(["storage", "verify", str(tmp_path), "--no-probe"]) == 0
    assert "no problems" in capsys.readouterr().out
    flip(tmp_path / second.key)
    (tmp_path / str(first.index_key)).unlink()
    assert main(["storage", "verify", str(tmp_path), "--settle-seconds", "0"]) == 1
    told = capsys.readouterr().out
    assert f"damage    {second.key}" in told
    assert f"neve storage skip {tmp_path} --topic {TOPIC} --partition 0" in told
    assert "2 problems; --repair can fix 1" in told
    assert main(["storage", "verify", str(tmp_path), "--repair", "--settle-seconds", "0"]) == 1
    told = capsys.readouterr().out
    assert "rebuilt from" in told
    assert "1 problem" in told
    assert main(["storage", "verify", str(tmp_path / "nothing")]) == 1
    assert "no Neve cluster" in capsys.readouterr().err
