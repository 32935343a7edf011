"""Verifying a KafScale bucket where it lies."""

from __future__ import annotations

import pytest

from neve.bucket.verify import Finding, Report, Severity
from neve.bucket.verify.kafscale import verify_kafscale
from neve.cluster.log import NoClusterError
from neve.records.crc import crc32c
from neve.records.reference import Record, build_batch
from neve.store.memory import MemoryStore
from support import foreign_bucket as foreign
from support.scripted_store import in_simulation


async def verified(store: MemoryStore) -> Report:
    """A report; nothing may be written for it."""
    before = dict(store.bucket.objects)
    report = await verify_kafscale(store)
    assert store.bucket.objects == before
    return report


async def only_finding(store: MemoryStore) -> Finding:
    (found,) = (await verified(store)).findings
    return found


@in_simulation
async def test_a_healthy_bucket_is_well() -> None:
    store = MemoryStore()
    for base in (40, 50, 60):
        foreign.add(store.bucket, base, timed=base == 50)
    foreign.add(store.bucket, 0, place="staging/other/3", codec=4)
    report = await verified(store)
    assert report.ok
    assert report.findings == []
    assert (report.counts["partitions"], report.counts["segments"]) == (2, 4)


@in_simulation
async def test_a_damaged_segment_is_named_and_what_follows_it_is_no_gap() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    harmed = foreign.add(store.bucket, 10)
    foreign.add(store.bucket, 20)
    foreign.damage(store.bucket, f"{harmed}.kfs")
    found = await only_finding(store)
    assert (found.severity, found.key) == (Severity.DAMAGE, f"{harmed}.kfs")
    assert "neve import kafscale --skip-damaged" in found.do
    assert not (await verified(store)).ok


@pytest.mark.parametrize("suffix", ["index", "kfst"])
@in_simulation
async def test_a_damaged_help_is_named_with_the_command_that_writes_it(suffix: str) -> None:
    store = MemoryStore()
    harmed = foreign.add(store.bucket, 0, timed=True)
    foreign.damage(store.bucket, f"{harmed}.{suffix}", 17)
    found = await only_finding(store)
    assert (found.severity, found.key) == (Severity.DAMAGE, f"{harmed}.{suffix}")
    assert "neve maintain build-index --layout kafscale" in found.do


@in_simulation
async def test_a_segment_that_begins_elsewhere_than_its_key_says() -> None:
    store = MemoryStore()
    right = foreign.add(store.bucket, 7, indexed=False)
    wrong = foreign.PLACE + f"/segment-{5:020d}.kfs"
    await store.put(wrong, bytes(await store.get(f"{right}.kfs")))
    await store.delete(f"{right}.kfs")
    found = (await verified(store)).findings[0]
    assert (found.severity, found.key) == (Severity.DAMAGE, wrong)
    assert "begins at offset 5, it begins at 7" in found.what


@in_simulation
async def test_a_batch_that_contradicts_its_header_is_damage() -> None:
    store = MemoryStore()
    rows = [Record(at, 1000 + at, b"k", foreign.value(at)) for at in range(3)]
    lying = bytearray(build_batch(rows))
    lying[61] ^= 0x7E  # the length of its first record
    lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")
    key = f"{foreign.PLACE}/segment-{0:020d}.kfs"
    store.bucket.write(key, foreign.segment(0, [bytes(lying)], 3))
    assert (await only_finding(store)).severity is Severity.DAMAGE


@in_simulation
async def test_gaps_overlaps_missing_indexes_and_half_pairs() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    later = foreign.add(store.bucket, 30, indexed=False)
    over = foreign.add(store.bucket, 35)
    half = foreign.add(store.bucket, 60, timed=True)
    await store.delete(f"{half}.kfs")
    report = await verified(store)
    told = {(row.severity.value, row.key): row.what for row in report.findings}
    assert set(told) == {
        ("note", f"{later}.kfs"),
        ("gap", f"{later}.kfs"),
        ("damage", f"{over}.kfs"),
        ("orphan", f"{half}.index"),
        ("orphan", f"{half}.kfst"),
    }
    assert "offsets 10 to 29 of orders-0" in told["gap", f"{later}.kfs"]


@in_simulation
async def test_a_bucket_without_a_segment_is_not_kafscale_s() -> None:
    with pytest.raises(NoClusterError):
        await verify_kafscale(MemoryStore())
