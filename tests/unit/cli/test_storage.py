"""`neve storage ls` and `dump`, and how commands end."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neve import __version__, runtime
from neve.bucket.model import Record
from neve.cli import main
from neve.cli.record_json import record_line
from neve.records import reference
from neve.records.reference import build_batch
from support import bucket_samples as samples
from support.bucket_samples import QUICK, Writer

NEVE = Path(sys.executable).with_name("neve")
SOME_OFFSETS = ["--partition", "0", "--from", "0", "--to", "1"]
FLAGS = [f"--set={name}={value}" for name, value in QUICK.items()]


async def _layered(url: str) -> None:
    writer = await Writer.start(url)
    await samples.layered(writer, "t", 2)
    await writer.close()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bucket")
    os.environ["NEVE_STORE_FOLDER_FSYNC"] = "false"
    try:
        runtime.run(_layered(str(folder)))
    finally:
        del os.environ["NEVE_STORE_FOLDER_FSYNC"]
    return str(folder)


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capfd.readouterr()
    return code, out, err


# --- how commands end


def test_version_and_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "--version") == (0, f"{__version__}\n", "")
    for command in ([], ["storage"], ["storage", "ls"], ["storage", "dump"], ["bench"], ["demo"]):
        code, out, err = run(capfd, *command, "--help")
        assert (code, err) == (0, "")
        assert " ".join(["neve", *command]) in out


@pytest.mark.parametrize(
    "argv",
    [
        ["store"],
        ["storage", "lss"],
        ["storage", "ls"],
        ["storage", "ls", "x", "--colour"],
        ["storage", "dump", "x", "--from", "soon"],
        ["storage", "dump", "x", "--from", "-1"],
        ["storage", "dump", "x", "--layout", "csv"],
        ["storage", "dump", "x", "--partition", "0"],
        ["storage", "dump", "x", "--follow", "--from-time", "0"],
        ["storage", "dump", "x", "--from-time", "yesterday"],
        ["storage", "dump", "x", "--to-time", "2026-01-01T00:00:00"],
        ["storage", "dump", "x", "--from", "10", "--to", "9"],
        ["storage", "dump", "x", "--from-time", "10", "--to-time", "9"],
        ["storage", "verify", "x", "--settle-seconds", "-1"],
        ["storage", "verify", "x", "--settle-seconds", "nan"],
        ["storage", "verify", "x", "--settle-seconds", "inf"],
        ["storage", "ls", "x", "--set", "reader.poll.ms"],
        ["storage", "ls", "x", "--set", "a=1", "--set", "a=2"],
        ["storage", "ls", "x", "--set", "reader.pole.ms=1"],
        ["storage", "ls", "x", "--config", "nowhere.toml"],
    ],
)
def test_what_is_not_understood_ends_with_2(
    argv: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("neve: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["storage", "ls", "ftp://x"], "unknown scheme ftp://"),
        (["storage", "ls", "memory://"], "memory://: this bucket holds no Neve cluster"),
        (["storage", "dump", "memory://"], "memory://: this bucket holds no Neve cluster"),
        (["storage", "verify", "memory://"], "memory://: this bucket holds no Neve cluster"),
        (
            ["storage", "skip", "memory://", "--accept-loss", "--topic", "t", *SOME_OFFSETS],
            "memory://: this bucket holds no Neve cluster",
        ),
        (["storage", "ls", "memory://", "--layout", "kafscale"], "no KafScale segment is here"),
        (["storage", "dump", "memory://", "--layout", "kafscale"], "no KafScale segment is here"),
    ],
)
def test_what_goes_wrong_is_one_line_and_1(
    argv: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, *argv)
    assert (code, out) == (1, "")
    assert err.startswith("neve: ")
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_reader_that_goes_away_is_no_error(bucket: str) -> None:
    with subprocess.Popen(
        [NEVE, "storage", "dump", bucket], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_an_interrupted_follower_ends_quietly_with_130(bucket: str) -> None:
    command = [NEVE, "storage", "dump", bucket, "--follow", "--topic", "t", "--partition", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(80)]
        assert [line["offset"] for line in lines] == list(range(80))
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_an_interrupt_while_the_command_is_loaded_is_no_traceback() -> None:
    # Importing the application stands for what takes long at the start.
    program = (
        "import sys, signal\n"
        "class Late:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'neve.cli.application':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Late())\n"
        "from neve.cli import main\n"
        "assert 'cyclopts' not in sys.modules\n"
        "sys.exit(main(['--version']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", [["storage", "dump"], ["storage", "ls"]])
def test_an_output_that_cannot_be_written_is_told(command: list[str], bucket: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [NEVE, *command, bucket], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    told = b"neve: cannot write to standard output: No space left on device\n"
    assert done.stderr == told


def test_a_closed_output_is_told(bucket: str) -> None:
    done = subprocess.run(
        f'"{NEVE}" storage ls "{bucket}" >&-', shell=True, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"neve: standard output is closed")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
def test_a_closed_input_or_error_output_does_not_matter(bucket: str, closed: str) -> None:
    done = subprocess.run(
        f'"{NEVE}" storage ls "{bucket}" {closed}', shell=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"TOPIC" in done.stdout


@pytest.mark.parametrize("command", ["ls", "dump", "verify"])
def test_a_mistyped_folder_is_not_made(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capfd, "storage", command, str(tmp_path / "mistyped"))
    assert code == 1
    assert str(tmp_path / "mistyped") in err
    assert list(tmp_path.iterdir()) == []


# --- ls


def test_ls_shows_partitions_and_streams(bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "storage", "ls", bucket)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[2][:5] == ["TOPIC", "PARTITION", "START", "END", "SEGMENTS"]
    assert rows[3][:5] == ["t", "0", "0", "80", "2"]
    assert rows[4][:5] == ["t", "1", "0", "80", "2"]
    assert rows[-1][-1] == "open"


def test_ls_as_json(bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "storage", "ls", bucket, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["url"], found["layout"], found["errors"]) == (bucket, "neve", [])
    (topic,) = found["topics"]
    assert [(row["partition"], row["start"], row["end"]) for row in topic["partitions"]] == [
        (0, 0, 80),
        (1, 0, 80),
    ]
    assert topic["partitions"][0]["tail_bytes"] > 0
    assert found["streams"][0]["sealed"] is False


def test_ls_goes_on_past_a_partition_that_cannot_be_looked_at(
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = samples.fresh_url()
    runtime.run(_layered(url))
    keys = [key for key in samples.objects(url).keys if "/manifest/0000000000/" in key]
    samples.damage(url, keys[0])
    code, out, err = run(capfd, "storage", "ls", url, "--json")
    assert code == 1
    assert keys[0] in err
    first, second = json.loads(out)["topics"][0]["partitions"]
    assert keys[0] in first["error"]
    assert (second["end"], second["error"]) == (80, None)


# --- dump


def test_dump_is_one_object_a_record(bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["--topic", "t", "--partition", "1", "--from", "38", "--to", "41"]
    code, out, err = run(capfd, "storage", "dump", bucket, *argv)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "topic": "t",
            "partition": 1,
            "offset": offset,
            "timestamp": 1000 + offset,
            "key": "k",
            "value": f"t-1@{offset}",
            "headers": [],
        }
        for offset in (38, 39, 40)
    ]


def test_dump_of_everything_and_by_time(bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capfd, "storage", "dump", bucket)
    assert len(out.splitlines()) == 160
    argv = ["--from-time", "1970-01-01T00:00:01.070Z", "--to-time", "1072"]
    _, out, _ = run(capfd, "storage", "dump", bucket, *argv)
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [70, 71, 70, 71]
    argv = ["--from-time", "1970-01-01T00:00:01.0694Z", "--to-time", "1970-01-01T00:00:01.0714Z"]
    _, out, _ = run(capfd, "storage", "dump", bucket, *argv)
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [70, 71, 70, 71]


def test_dump_follows_to_an_end(bucket: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capfd, "storage", "dump", bucket, "--follow", "--from", "70", "--to", "80", *FLAGS
    )
    assert code == 0
    assert len(out.splitlines()) == 20


def test_dump_says_what_it_passed_over(capfd: pytest.CaptureFixture[str]) -> None:
    url = samples.fresh_url()
    rows = [reference.Record(5, 1, None, b"v")]
    for base in (5, 9):
        batch = build_batch([rows[0]._replace(offset=base)])
        from neve.log.segment import kfs

        data = b"".join(kfs.build(base, 0, [batch]).parts)
        samples.objects(url).write(f"ns/t/0/segment-{base:020d}.kfs", data)
    code, out, err = run(capfd, "storage", "dump", url, "--layout", "kafscale")
    assert code == 0
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [5, 9]
    assert "skipped 3 offsets" in err


RECORD = Record(
    "t", 0, 1, 2, 0, None, b"\xff\x00", (("a", b"1"), ("a", None), (b"\xfe", b"\xfd"), ("ä", b""))
)


def test_text_is_the_bytes_and_the_rest_is_marked() -> None:
    assert json.loads(record_line(RECORD, "text")) == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "timestamp": 2,
        "key": None,
        "value": {"base64": "/wA="},
        "headers": [
            {"key": "a", "value": "1"},
            {"key": "a", "value": None},
            {"key": {"base64": "/g=="}, "value": {"base64": "/Q=="}},
            {"key": "ä", "value": ""},
        ],
    }
    looks_alike = RECORD._replace(value=b'{"base64": "/wA="}')
    assert json.loads(record_line(looks_alike, "text"))["value"] == '{"base64": "/wA="}'


def test_base64_is_every_value() -> None:
    found = json.loads(record_line(RECORD._replace(key=b"k"), "base64"))
    assert (found["key"], found["value"]) == ("aw==", "/wA=")
    assert found["headers"][1] == {"key": "a", "value": None}
    assert found["headers"][2] == {"key": {"base64": "/g=="}, "value": "/Q=="}
    assert base64.b64decode(found["headers"][0]["value"]) == b"1"
