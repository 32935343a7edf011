"""Batches whose header contradicts their content: taken as they are, and told by every reader.

A broker does not decompress what it is given. So a count that disagrees with compressed records, or
a codec that the content is not of, passes it, and a consumer gets the bytes that were produced. Who
reads with Neve is told: `neve.open`, `neve storage dump`, `neve storage verify`; `test_bad_data.py`
has Spark, SQL, the lake and maintenance.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import neve
from neve.errors import DamagedError
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.records import compression
from neve.records.batch import assemble, parse_header
from neve.records.reference import Record, build_batch
from soak.wire import Wire
from support.brokers import start_broker
from support.hostile import fetch, lying, produce, section

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def mislabelled(codec: int, content: bytes) -> bytes:
    """A batch that says it has this codec, whatever its content is."""
    plain = bytearray(
        assemble(
            content,
            record_count=2,
            last_offset_delta=1,
            base_timestamp=1_000,
            max_timestamp=1_000,
            flags=codec,
        )
    )
    return bytes(plain)


BAD = {
    "fewer records than told, plain": lying(0, 3, 2),
    "more records than told, plain": lying(0, 2, 3),
    **{
        f"{kind} records than told, {compression.CODECS[codec]}": lying(codec, told, really)
        for codec in (GZIP, SNAPPY, LZ4, ZSTD)
        for kind, told, really in (("fewer", 3, 2), ("more", 2, 3))
    },
    "not gzip": mislabelled(GZIP, section(2)),
    "not zstd": mislabelled(ZSTD, compression.compress(GZIP, section(2))),
    "not snappy": mislabelled(SNAPPY, b"\xff" * 40),
    "not lz4": mislabelled(LZ4, bytes(40)),
}


def topic_of(name: str) -> str:
    return "t-" + "".join(letter if letter.isalnum() else "-" for letter in name)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic for each of them, with a good batch before and after."""
    folder = tmp_path_factory.mktemp("lies")
    running = start_broker(folder / "bucket", folder / "log", store_folder_fsync=False)
    try:
        made = CREATE_TOPICS.Request
        topics = [
            made.Topic(name=topic_of(name), num_partitions=1, replication_factor=1) for name in BAD
        ]
        with Wire(running.port, "test") as wire:
            wire.call(CREATE_TOPICS, 5, made(topics=topics, timeout_ms=20_000))
            good = build_batch([Record(0, 1_000, None, b"good")])
            for name, bad in BAD.items():
                for one in (good, bad, good):
                    assert produce(wire, topic_of(name), one).error_code == 0
                found = bytes(fetch(wire, topic_of(name), 0, max_wait_ms=1_000).records)
                size = parse_header(found).size
                # Byte for byte, but for the offset and epoch that the broker gave it.
                assert found[size + 16 : size + len(bad)] == bad[16:]
        assert "Traceback" not in running.log
        assert running.stop() == 0
    finally:
        if running.process.poll() is None:
            running.kill()
    return folder / "bucket"


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "neve.cli", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", BAD)
def test_a_reader_is_told_and_gets_what_is_good_before_it(bucket: Path, name: str) -> None:
    with neve.open(str(bucket)) as opened:
        records = opened.read(topic_of(name), 0)
        assert next(records).offset == 0
        with pytest.raises(DamagedError, match=f"{topic_of(name)}-0.*neve storage verify.*skip"):
            next(records)


@pytest.mark.parametrize("name", [next(iter(BAD)), "fewer records than told, zstd", "not gzip"])
def test_a_dump_says_so_and_fails(bucket: Path, name: str) -> None:
    done = command("storage", "dump", bucket, "--topic", topic_of(name))
    assert done.returncode != 0
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_verify_names_every_one_of_them(bucket: Path) -> None:
    done = command("storage", "verify", bucket, "--settle-seconds", "0")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    told = done.stdout + done.stderr
    for name, bad in BAD.items():
        # Its own offsets, and not those of the good ones beside it.
        last = parse_header(bad).record_count
        assert f"offsets 1 to {last} of {topic_of(name)}" in told, (name, told)
