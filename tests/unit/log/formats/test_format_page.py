"""docs/contributors/format.md says what the code does: layouts, kinds, bounds, keys."""

from __future__ import annotations

import enum
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from neve.cluster.liveness import heartbeat
from neve.log import envelope, keys
from neve.log.segment import frame, kafscale, kfs, sections
from neve.log.wal import object as wal
from neve.records import batch, compression

PAGE = (Path(__file__).parents[4] / "docs" / "contributors" / "format.md").read_text()
TYPES = {"i8": "b", "u16": "H", "u32": "I", "u64": "Q", "i16": "h", "i32": "i", "i64": "q"}


def section(title: str) -> str:
    """What stands under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/contributors/format.md has no heading {title!r}"
    return found[1]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def layout(title: str) -> tuple[str, list[int]]:
    """The struct format of a table, and the positions it gives its fields."""
    codes = []
    for _, kind, _ in rows(title):
        codes.append(f"{kind.split()[1]}s" if kind.startswith("bytes") else TYPES[kind])
    return ">" + "".join(codes), [int(at) for at, _, _ in rows(title)]


def columns(dtype: np.dtype[np.void]) -> str:
    """A numpy layout as a struct format."""
    assert dtype.names
    return ">" + "".join({8: "q", 4: "i"}[dtype[name].itemsize] for name in dtype.names)


LAYOUTS = {
    "Envelope header, 40 bytes": envelope._HEADER.format,
    "Batch header, 61 bytes": batch._HEADER.format,
    "WAL object header, 64 bytes": wal._HEADER.format + "I",
    "WAL directory entry, 64 bytes": wal._ENTRY.format,
    "Segment header, 32 bytes": kfs._HEADER.format,
    "Segment footer, 16 bytes": kfs._FOOTER.format,
    "Index header, 16 bytes": frame._INDEX_HEADER.format,
    "Index entry, 12 bytes": columns(frame._INDEX_ENTRY),
    "Bundle directory header, 8 bytes": frame._DIRECTORY_HEADER.format,
    "Bundle directory entry, 16 bytes": frame._DIRECTORY_ENTRY.format,
    "Timestamp pair, 16 bytes": columns(sections._TIMESTAMP_PAIR),
    "Aborted transaction, 32 bytes": sections._TRANSACTION.format,
    "Producer, 44 bytes": sections._PRODUCER.format,
    "Recent batch, 32 bytes": sections._RECENT_BATCH.format,
    "Epoch start, 12 bytes": sections._EPOCH.format,
    "Checksum header, 32 bytes": sections._CHECKSUM.format,
    "State row, 16 bytes": sections._STATE_ROW.format,
    "Times (`.kfst`), 40 bytes": kafscale._TIMES.format,
}


@pytest.mark.parametrize("title", LAYOUTS)
def test_a_table_is_the_layout_of_the_code(title: str) -> None:
    written, positions = layout(title)
    assert written == LAYOUTS[title]
    codes = re.findall(r"\d*[a-zA-Z]", written)
    assert positions == [struct.calcsize(">" + "".join(codes[:i])) for i in range(len(codes))]
    assert struct.calcsize(written) == int(re.findall(r"(\d+) bytes", title)[0])


def test_every_table_of_a_layout_is_compared() -> None:
    assert set(re.findall(r"^#+ (.*, \d+ bytes)$", PAGE, re.MULTILINE)) == set(LAYOUTS)


@pytest.mark.parametrize(
    ("title", "magic", "version"),
    [
        ("Envelope header, 40 bytes", envelope.MAGIC, envelope.VERSION),
        ("WAL object header, 64 bytes", wal.MAGIC, wal.VERSION),
        ("Segment header, 32 bytes", kfs.MAGIC, kfs.VERSION),
        ("Segment footer, 16 bytes", kfs.END_MAGIC, None),
        ("Index header, 16 bytes", frame.INDEX_MAGIC, frame.INDEX_VERSION),
        ("Bundle directory header, 8 bytes", frame.DIRECTORY_MAGIC, frame.DIRECTORY_VERSION),
        ("Times (`.kfst`), 40 bytes", kafscale.TIMES_MAGIC, kafscale.TIMES_VERSION),
    ],
)
def test_magics_and_versions_are_those_of_the_code(
    title: str, magic: bytes, version: int | None
) -> None:
    text = section(title)
    assert f"magic `{magic.decode().replace(chr(0), chr(92) + '0')}` |" in text
    if version is not None:
        assert f"version, {version} |" in text


@pytest.mark.parametrize(
    ("title", "kinds"),
    [
        ("Envelope kinds", envelope.Kind),
        ("WAL object kinds", wal.Kind),
        ("Section kinds", sections.Section),
    ],
)
def test_kinds_are_those_of_the_code(title: str, kinds: type[enum.IntEnum]) -> None:
    assert {row[1]: int(row[0]) for row in rows(title)} == {each.name: each.value for each in kinds}


def test_section_versions_are_all_one() -> None:
    assert set(sections.VERSIONS.values()) == {1}


def test_bounds_are_those_of_the_code() -> None:
    assert {row[0]: int(row[1]) for row in rows("Bounds")} == {
        "WAL object, bytes": wal.OBJECT_BYTES_MAX,
        "slices in a WAL object": wal.SLICES_MAX,
        "segment, bytes": kfs.SEGMENT_BYTES_MAX,
        "bundle, bytes": frame.BUNDLE_BYTES_MAX,
        "envelope payload, bytes": envelope.PAYLOAD_BYTES_MAX,
        "heartbeat, bytes": heartbeat.HEARTBEAT_BYTES_MAX,
    }
    assert f"at most {sections.RECENT_BATCHES_MAX} |" in section("Producer, 44 bytes")


def test_examples_of_keys_are_what_the_code_makes_and_reads() -> None:
    examples = [line.strip() for line in section("Keys").splitlines() if line.startswith("    ")]
    topic_id = bytes.fromhex("00112233445566778899aabbccddeeff")
    cluster, stream = keys.cluster_log(), keys.wal_stream(3)
    manifest = keys.manifest("orders", topic_id, 2)
    assert examples[:5] == [
        cluster.number(7),
        cluster.checkpoint(7),
        keys.heartbeat_key(3),
        stream.number(7),
        stream.checkpoint(7),
    ]
    assert keys.rollup_checkpoint(stream, examples[5]) == 7
    assert examples[6] == manifest.number(7)
    assert examples[7].startswith(f"{manifest.prefix}run/")
    for example, suffix in zip(examples[8:], ("kfs", "index"), strict=True):
        assert example.startswith(keys.segment_prefix("orders", topic_id, 2))
        token = "0123456789abcdef"
        assert keys.segment_name(example) == keys.SegmentName(100, 3, token, suffix)


def test_attributes_of_batches_are_those_of_the_code() -> None:
    bits = {row[0]: row[1] for row in rows("Batch attributes")}
    flags = (batch.LOG_APPEND_TIME, batch.TRANSACTIONAL, batch.CONTROL, batch.DELETE_HORIZON)
    assert [1 << int(at) for at in list(bits)[1:]] == list(flags)
    assert batch.CODEC_MASK == 0b111
    named = {int(code): name for code, name in re.findall(r"(\d) (\w+)", bits["0 to 2"])}
    assert set(named) == set(compression.CODECS)
