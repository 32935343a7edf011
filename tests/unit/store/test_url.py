"""URLs, and the stack that is built around a store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from neve import runtime
from neve.errors import InvalidError, NotFoundError, UnavailableError
from neve.settings import StoreSettings
from neve.store.faults import Fault, Faults, FaultyStore, Latencies, Latency, Rule
from neve.store.folder import FolderStore
from neve.store.gate import NoFreeSlotError
from neve.store.memory import MemoryStore
from neve.store.url import Location, connect, open_store, parse, refuse_one_zone, stack

SETTINGS = StoreSettings()


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("memory://", Location("memory")),
        ("memory://name", Location("memory", "name")),
        ("file:///abs/path", Location("file", folder=Path("/abs/path"))),
        ("file:///with%20space", Location("file", folder=Path("/with space"))),
        ("file://./relative/path", Location("file", folder=Path("relative/path"))),
        ("file://../beside", Location("file", folder=Path("../beside"))),
        ("file://.", Location("file", folder=Path())),
        ("/abs/path", Location("file", folder=Path("/abs/path"))),
        ("relative/path", Location("file", folder=Path("relative/path"))),
        ("s3://bucket", Location("s3", "bucket")),
        ("s3://my.bucket-1/some/prefix/", Location("s3", "my.bucket-1", "some/prefix")),
        ("gs://bucket/p", Location("gs", "bucket", "p")),
        ("az://container/p", Location("az", "container", "p")),
    ],
)
def test_urls(url: str, where: Location) -> None:
    assert parse(url) == where
    assert where.is_local is (where.scheme in {"memory", "file"})


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "not the URL"),
        ("http://host/x", "http://"),
        ("S3://bucket", "S3://"),
        ("s3:/bucket", "slashes"),
        ("s3://", "not a valid bucket name"),
        ("s3:///prefix", "not a valid bucket name"),
        ("s3://bu cket/x", "not a valid bucket name"),
        ("s3://key:secret@bucket/x", "credentials come from the environment"),
        ("s3://bucket/x?region=y", "other options from the settings"),
        ("s3://bucket:99x/x", "not a URL"),
        ("s3://bucket/a/../b", "is not a valid key"),
        ("s3://bucket/a//b", "is not a valid key"),
        ("file://host/path", "has a host"),
        ("file://", "file:///absolute"),
        ("memory://name/prefix", "cannot have a prefix"),
        ("/with\0nul", "not the URL"),
    ],
)
def test_bad_urls_say_what_is_wrong(url: str, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        parse(url)


async def test_memory_is_shared_by_name_only() -> None:
    one, two = open_store("memory://", SETTINGS), open_store("memory://", SETTINGS)
    await one.put("k", b"x")
    with pytest.raises(NotFoundError):
        await two.get("k")
    name = f"memory://{runtime.token(8).hex()}"
    one, two = open_store(name, SETTINGS), open_store(name, SETTINGS)
    await one.put("k", b"x")
    await one.close()
    assert await two.get("k") == b"x"


async def test_a_folder_by_url_and_by_path(tmp_path: Path) -> None:
    await open_store(f"file://{tmp_path}/store", SETTINGS).put("k", b"x")
    store = open_store(str(tmp_path / "store"), StoreSettings(folder_fsync=False))
    assert isinstance(store, FolderStore)
    assert await store.get("k") == b"x"


async def test_clouds_open_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for url in ("s3://bucket/p", "gs://bucket/p", "az://container/p", "s3://b--use1-az4--x-s3"):
        await open_store(url, SETTINGS).close()


async def test_a_profile_without_its_credentials_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(InvalidError, match="no-such-profile"):
        open_store("s3://bucket", SETTINGS)


async def test_what_a_cloud_lacks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidError, match="az://container"):
        open_store("az://container/p", SETTINGS)


def test_the_gate_counts_retries_and_hedges() -> None:
    async def scenario() -> None:
        latency = Latency(20, 200)
        faulty = FaultyStore(
            MemoryStore(),
            Faults(fails=0.1, hangs=0.01),
            latencies=Latencies.of(write=latency, read=latency),
        )
        wrapped = stack(faulty, StoreSettings(concurrency_max=8, retry_attempts_max=50))

        async def client(number: int) -> None:
            for step in range(20):
                await wrapped.store.create(f"{number}/{step}", b"x")
                await wrapped.store.get(f"{number}/{step}")

        await runtime.gather(*(client(number) for number in range(40)))
        assert wrapped.gate.peak == 8
        assert wrapped.gate.in_flight == wrapped.gate.waiting == 0
        assert wrapped.retry.retries > 100
        made = wrapped.meter.calls("create") + wrapped.meter.calls("get")
        assert made == faulty.calls == 1600 + wrapped.retry.retries + wrapped.hedge.hedges
        await wrapped.close()

    runtime.simulate(scenario(), seed=1)


def test_a_hang_is_hedged_around_and_costs_its_slot_no_longer_than_the_race() -> None:
    async def scenario() -> None:
        faulty = FaultyStore(MemoryStore(), latencies=Latencies(create=Latency(20, 40)))
        wrapped = stack(faulty, SETTINGS)
        for number in range(100):
            await wrapped.store.create(f"{number}", b"x")
        faulty.script.append(Rule(Fault.HANGS))
        started = runtime.monotonic()
        await wrapped.store.create("hung", b"x")
        assert runtime.monotonic() - started < 0.2
        assert wrapped.gate.in_flight == 0

    runtime.simulate(scenario(), seed=1)


def test_a_lost_answer_is_told_as_taken_and_reading_shows_whose() -> None:
    async def scenario() -> None:
        faulty = FaultyStore(MemoryStore(), script=[Rule(Fault.FAILS_AFTER_EFFECT)])
        wrapped = stack(faulty, SETTINGS)
        with pytest.raises(Exception, match="the key exists"):
            await wrapped.store.create("k", b"mine")
        assert await wrapped.store.get("k") == b"mine"

    runtime.simulate(scenario(), seed=1)


def test_prefetch_goes_through_retry_and_time_out_but_never_waits() -> None:
    async def scenario() -> None:
        rules = [Rule(Fault.FAILS, key_part="flaky"), Rule(Fault.HANGS, key_part="hangs", times=99)]
        faulty = FaultyStore(MemoryStore(), script=rules)
        wrapped = stack(faulty, StoreSettings(concurrency_max=1))
        await faulty.inner.put("flaky", b"x")
        assert await wrapped.prefetch.get("flaky") == b"x"
        hung = runtime.spawn(wrapped.prefetch.get("hangs"))
        await runtime.sleep(1)
        with pytest.raises(NoFreeSlotError):
            await wrapped.prefetch.get("flaky")
        with pytest.raises(UnavailableError):
            await hung
        assert wrapped.gate.in_flight == 0

    runtime.simulate(scenario(), seed=1)


async def test_connect_does_both() -> None:
    wrapped = connect("memory://", SETTINGS)
    await wrapped.store.create("k", b"x")
    assert wrapped.meter.calls("create", "ok") == 1
    await wrapped.close()


async def test_only_what_lies_behind_a_network_is_hedged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    hedged = {}
    for url in ("memory://", str(tmp_path), "s3://bucket"):
        opened = connect(url, StoreSettings())
        hedged[url] = opened.hedge.enabled
        await opened.close()
    assert list(hedged.values()) == [False, False, True]


def test_a_bucket_in_one_zone_is_refused_unless_asked_for() -> None:
    express = "s3://events--usw2-az1--x-s3/prefix"
    with pytest.raises(InvalidError, match=r"loses all records.*wal\.durability=zone"):
        refuse_one_zone(express, "region")
    refuse_one_zone(express, "zone")
    for url in ("s3://events", "gs://events--x-s3", "events--x-s3"):
        refuse_one_zone(url, "region")


def test_an_endpoint_of_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(InvalidError, match="AWS_ENDPOINT_URL is not the URL of a server"):
        open_store("s3://bucket", SETTINGS)
