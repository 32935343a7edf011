"""The envelope against damage, misplacement, newer writers and hostile payloads."""

from __future__ import annotations

import struct

import msgspec
import pytest

from neve.errors import DamagedError, InvalidError, NeveError, UnsupportedError
from neve.log import envelope
from neve.log.envelope import Kind, decode_payload, open_envelope, seal_envelope
from neve.log.manifest.records import (
    Add,
    Collected,
    Doom,
    ManifestRecord,
    Reindex,
    Removal,
    Replace,
    Run,
    RunBody,
    Runs,
    Segment,
    Skip,
    Start,
)
from neve.log.manifest.state import DoomedRun, ManifestState, StateBundle
from neve.log.wal.checkpoint import PartitionEnd, WalCheckpoint
from neve.records.crc import crc32c

AUTHOR = b"a" * 16
KIND = Kind.MANIFEST_RECORD
KEY = "p/00000000000000000003"
RECORD = ManifestRecord((Doom(("one", "two")),))


def sealed(payload: object = RECORD) -> bytes:
    return seal_envelope(KIND, "p/", 3, AUTHOR, payload)


def opened(data: bytes, schema: type = ManifestRecord) -> object:
    return decode_payload(open_envelope(data, KIND, "p/", 3, KEY), schema, KEY)


def resealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits, as a hostile or newer writer would have made."""
    return data[:-4] + struct.pack(">I", crc32c(data[:-4]))


def with_body(body: bytes) -> bytes:
    whole = sealed()
    head = bytearray(whole[: envelope.OVERHEAD_BYTES - 4])
    struct.pack_into(">I", head, len(head) - 4, len(body))
    return resealed(bytes(head) + body + b"\0\0\0\0")


def test_what_was_sealed_is_opened() -> None:
    found = open_envelope(sealed(), KIND, "p/", 3, KEY)
    assert (found.kind, found.number, found.author) == (KIND, 3, AUTHOR)
    assert opened(sealed()) == RECORD


def test_any_flipped_bit_is_damage_that_names_the_key() -> None:
    data = sealed()
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises(DamagedError) as raised:
                opened(bytes(broken))
            assert raised.value.key == KEY


def test_any_cut_or_addition_is_damage() -> None:
    data = sealed()
    for length in range(len(data)):
        with pytest.raises(DamagedError):
            opened(data[:length])
    with pytest.raises(DamagedError):
        opened(data + b"\0")
    with pytest.raises(DamagedError):
        opened(data + data)


def test_an_object_of_another_place_is_damage() -> None:
    data = sealed()
    for kind, prefix, number in [
        (Kind.MANIFEST_CHECKPOINT, "p/", 3),
        (KIND, "q/", 3),
        (KIND, "p/", 4),
    ]:
        with pytest.raises(DamagedError):
            open_envelope(data, kind, prefix, number, KEY)


def test_a_newer_version_is_refused_as_such() -> None:
    newer = bytearray(sealed())
    struct.pack_into(">H", newer, 4, envelope.VERSION + 1)
    with pytest.raises(UnsupportedError, match=KEY):
        opened(resealed(bytes(newer)))


def test_version_zero_is_damage() -> None:
    older = bytearray(sealed())
    struct.pack_into(">H", older, 4, 0)
    with pytest.raises(DamagedError):
        opened(resealed(bytes(older)))


@pytest.mark.parametrize("length", [0, 2**31, 2**32 - 1, envelope.PAYLOAD_BYTES_MAX + 1])
def test_a_length_that_the_object_does_not_have_is_damage(length: int) -> None:
    broken = bytearray(sealed())
    struct.pack_into(">I", broken, envelope.OVERHEAD_BYTES - 8, length)
    with pytest.raises(DamagedError):
        opened(resealed(bytes(broken)))


def test_a_payload_above_the_bound_is_refused_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(envelope, "PAYLOAD_BYTES_MAX", 10)
    with pytest.raises(InvalidError, match="above the bound"):
        sealed()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"changes":[{"type":"doom","keys":["\xff"]}]}',
        b'{"changes":[{"type":"never heard of","keys":[]}]}',
        b'{"changes":[{"keys":[]}]}',
        b'{"changes":[{"type":"doom"}]}',
        b'{"changes":[{"type":"doom","keys":[1]}]}',
        b'{"changes":[{"type":"start","offset":"1"}]}',
        b'{"changes":' + b"[" * 100_000,
        b'{"changes":[],"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"changes":[],"more":1}',
        b'{"changes":[{"type":"doom","keys":[],"more":1}]}',
    ],
)
def test_a_payload_that_is_not_what_it_should_be_is_refused(body: bytes) -> None:
    with pytest.raises((DamagedError, UnsupportedError), match=KEY):
        opened(with_body(body))


SEGMENT = Segment(
    key="s",
    base=0,
    last=1,
    bytes=1,
    records=2,
    min_timestamp=0,
    max_timestamp=0,
    created_ms=0,
    epoch=0,
    crc=0,
)
RUN = Run(key="r", base=0, last=1, segments=1, bytes=1, min_timestamp=0, max_timestamp=0)
REMOVAL = Removal(key="s", base=0, last=1)
SKIP = Skip(0, 1, 2, "why")
STATE = ManifestState(
    loose=(SEGMENT,),
    runs=(RUN,),
    removed=(REMOVAL,),
    reindexed=(Reindex("s", 0, None, "i", 1),),
    doomed_runs=(DoomedRun("r", 1),),
    state_bundle=StateBundle("i", 1, 2),
    skips=(SKIP,),
)
STORED = [
    ManifestRecord((Add((SEGMENT,)),)),
    ManifestRecord((Replace((REMOVAL,), (SEGMENT,)),)),
    ManifestRecord((Reindex("s", 0, None, "i", 1),)),
    ManifestRecord((Start(1, (REMOVAL,)),)),
    ManifestRecord((Doom(("k",)), Collected(("k",)))),
    ManifestRecord((Runs((RUN,), ("q",)),)),
    ManifestRecord((SKIP,)),
    RunBody((SEGMENT,)),
    STATE,
    WalCheckpoint(("k",), (PartitionEnd("00" * 16, 0, 0, 1),)),
]


def each_with_an_unknown_field(tree: object) -> list[object]:
    """The tree once for every object in it, which has a field too many there."""
    if isinstance(tree, dict):
        inside = [
            {**tree, name: changed}
            for name, value in tree.items()
            for changed in each_with_an_unknown_field(value)
        ]
        return [{**tree, "from_the_future": True}, *inside]
    if isinstance(tree, list):
        return [
            [*tree[:at], changed, *tree[at + 1 :]]
            for at, value in enumerate(tree)
            for changed in each_with_an_unknown_field(value)
        ]
    return []


@pytest.mark.parametrize("payload", STORED, ids=lambda payload: type(payload).__name__)
def test_a_field_from_the_future_is_refused_wherever_it_stands(payload: object) -> None:
    assert opened(sealed(payload), type(payload)) == payload
    changed = each_with_an_unknown_field(msgspec.to_builtins(payload))
    assert changed
    for tree in changed:
        with pytest.raises(UnsupportedError, match="upgrade"):
            opened(sealed(tree), type(payload))


def test_hostile_numbers_do_not_break_the_decoder() -> None:
    body = b'{"changes":[{"type":"start","offset":' + b"9" * 5_000 + b"}]}"
    with pytest.raises(NeveError):
        opened(with_body(body))
