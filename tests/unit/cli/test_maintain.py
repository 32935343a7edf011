"""`neve maintain` and `neve import`, run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neve import runtime
from neve.cli import import_kafscale, maintain, storage
from neve.cli.output import UsageError
from neve.errors import DamagedError, InvalidError
from neve.store.memory import MemoryBucket
from support import bucket_samples as samples
from support import foreign_bucket as foreign
from support.bucket_samples import Writer

QUICK = ["--set=store.folder.fsync=false", "--set=segment.index.interval=5"]


def called(app: Any, *argv: str) -> int:
    return int(app([*argv, *QUICK], exit_on_error=False, result_action="return_value"))


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """Two partitions of two segments each, in a folder."""
    url = str(tmp_path / "bucket")
    chosen = samples.settings(store__folder__fsync="false")

    async def fill() -> None:
        writer = await Writer.start(url, chosen=chosen)
        await samples.layered(writer, "t", 2)
        await writer.close()

    runtime.run(fill())
    return url


def test_merge_tells_people_and_programs(bucket: str, capsysbinary: Any) -> None:
    assert called(maintain.app, "merge", bucket, "--local", "--dry-run", "--json") == 0
    planned = json.loads(capsysbinary.readouterr().out)
    assert [row["merged"] for row in planned["partitions"]] == [2, 2]
    assert called(maintain.app, "merge", bucket, "--local", "--topic", "t", "--partition", "1") == 0
    text = capsysbinary.readouterr().out.decode()
    assert "t-1: 2 segments merged into 1" in text
    assert "t-0:" not in text
    assert called(maintain.app, "merge", bucket, "--local", "--json") == 0
    done = json.loads(capsysbinary.readouterr().out)
    assert [row["merged"] for row in done["partitions"]] == [2, 0]
    assert called(maintain.app, "verify", bucket, "--local", "--json", "--settle-seconds=0") == 0
    told = json.loads(capsysbinary.readouterr().out)
    assert told["ok"]
    assert told["rest"]["counts"]["stream_numbers"] > 0


def test_expire_and_build_index(bucket: str, capsysbinary: Any) -> None:
    index = next(Path(bucket).glob("topics/*/0000000000/*.index"))
    index.unlink()
    assert called(maintain.app, "build-index", bucket, "--local") == 0
    assert "t-0: built for" in capsysbinary.readouterr().out.decode()
    assert called(maintain.app, "expire", bucket, "--local", "--dry-run") == 0
    text = capsysbinary.readouterr().out.decode()
    assert "t-0: starts at 40: 2 segments" in text
    assert "dry run" in text
    assert called(maintain.app, "expire", bucket, "--local", "--json") == 0
    assert [row["start"] for row in json.loads(capsysbinary.readouterr().out)["partitions"]] == [
        40,
        40,
    ]


def test_damage_ends_with_1(bucket: str, capsysbinary: Any) -> None:
    segment = next(Path(bucket).glob("topics/*/0000000001/*.kfs"))
    segment.unlink()
    assert called(maintain.app, "verify", bucket, "--local", "--settle-seconds=0") == 1
    assert "t-1: damage" in capsysbinary.readouterr().out.decode()


def test_what_makes_no_sense_is_refused(bucket: str) -> None:
    with pytest.raises(UsageError, match="target-bytes"):
        called(maintain.app, "merge", bucket, "--target-bytes", str(2**31))
    with pytest.raises(UsageError, match="tasks"):
        called(maintain.app, "merge", bucket, "--tasks", "0")
    with pytest.raises(InvalidError, match="--local"):
        called(maintain.app, "merge", _memory_url())


def _memory_url() -> str:
    url = samples.fresh_url()

    async def fill() -> None:
        writer = await Writer.start(url)
        await writer.node.topics.create("t", 1)
        await writer.close()

    runtime.run(fill())
    return url


def test_import_and_taking_ownership(tmp_path: Path, capsysbinary: Any) -> None:
    made = MemoryBucket()
    foreign.add(made, 0)
    foreign.add(made, 10, indexed=False)
    foreign.add(made, 3, place="staging/orders/0")
    for key, (data, _) in made.objects.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    url = str(tmp_path)
    only = ["--namespace", "production"]
    assert (
        called(maintain.app, "build-index", url, "--layout=kafscale", "--local", "--dry-run") == 0
    )
    assert ".kfst" in capsysbinary.readouterr().out.decode()
    assert called(import_kafscale.app, "kafscale", url) == 1
    assert "refused" in capsysbinary.readouterr().out.decode()
    assert called(import_kafscale.app, "kafscale", url, *only, "--dry-run") == 0
    text = capsysbinary.readouterr().out.decode()
    assert "would be imported: 1 partitions, 2 segments" in text
    assert "1 topics would be imported, 0 refused" in text
    assert "Neve's own" not in text
    dry = [*only, "--take-ownership", "--dry-run"]
    assert called(import_kafscale.app, "kafscale", url, *dry) == 0
    assert "2 segments would be owned by Neve" in capsysbinary.readouterr().out.decode()
    assert called(import_kafscale.app, "kafscale", url, *only, "--json") == 0
    told = json.loads(capsysbinary.readouterr().out)
    assert (told["ok"], told["dry_run"]) == (True, False)
    assert told["topics"][0]["outcome"] == "imported"
    assert called(import_kafscale.app, "kafscale", url, *dry, "--json") == 0
    told = json.loads(capsysbinary.readouterr().out)
    assert (told["dry_run"], told["taken"][0]["result"]["taken"]) == (True, 2)
    assert called(import_kafscale.app, "kafscale", url, *dry) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "orders-0: 2 segments would be owned by Neve" in text
    assert "now" not in text
    assert called(import_kafscale.app, "kafscale", url, *only, "--take-ownership") == 0
    text = capsysbinary.readouterr().out.decode()
    assert "already imported" in text
    assert "2 segments are now owned by Neve" in text
    assert called(maintain.app, "merge", url, "--local") == 0
    assert "2 segments merged into 1" in capsysbinary.readouterr().out.decode()
    assert not list(tmp_path.glob("production/**/*.kfs"))
    assert list(tmp_path.glob("staging/**/*.kfs"))


def test_a_damaged_kafscale_segment_is_counted_and_verified(
    tmp_path: Path, capsysbinary: Any
) -> None:
    made = MemoryBucket()
    harmed = foreign.add(made, 0, indexed=False)
    foreign.damage(made, f"{harmed}.kfs")
    foreign.add(made, 0, place="production/orders/1")
    for key, (data, _) in made.objects.items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    url = str(tmp_path)
    assert called(maintain.app, "build-index", url, "--layout=kafscale", "--local") == 1
    text = capsysbinary.readouterr().out.decode()
    assert f"orders-0: failed: {harmed}.kfs is damaged" in text
    assert "build-index of 2 partitions, 1 failed" in text
    with pytest.raises(DamagedError, match="neve storage verify --layout kafscale"):
        called(storage.app, "dump", url, "--layout=kafscale")
    capsysbinary.readouterr()
    assert called(storage.app, "verify", url, "--layout=kafscale") == 1
    text = capsysbinary.readouterr().out.decode()
    assert f"damage    {harmed}.kfs" in text
    assert "1 problem" in text
    assert called(storage.app, "verify", url, "--layout=kafscale", "--json") == 1
    told = json.loads(capsysbinary.readouterr().out)
    assert (told["ok"], told["findings"][0]["key"]) == (False, f"{harmed}.kfs")
    with pytest.raises(UsageError, match="build-index"):
        called(storage.app, "verify", url, "--layout=kafscale", "--repair")
