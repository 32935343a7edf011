"""`neve cluster …` on a folder, with and without brokers that are running."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from neve import runtime
from neve.broker.broker import Broker
from neve.cli import main
from neve.cluster.node import Node
from neve.settings import Settings, StoreSettings
from neve.store.url import connect
from support.node_world import small_settings
from support.wire import running_broker

STORE = StoreSettings(folder_fsync=False)
HOUR_MS = 3_600_000


@contextlib.asynccontextmanager
async def brokers(folder: Path, *node_ids: int) -> AsyncIterator[list[Broker]]:
    """Brokers at work on a folder, which do not balance their load in time for a test to see it."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for node_id in node_ids:
            given = dataclasses.replace(Settings().broker, node_id=node_id, rack=f"r{node_id}")
            cluster = dataclasses.replace(
                Settings().cluster, rebalance_delay_ms=HOUR_MS, poll_ms=50
            )
            settings = dataclasses.replace(Settings(), broker=given, cluster=cluster, store=STORE)
            store = connect(str(folder), STORE).store
            found.append(await stack.enter_async_context(running_broker(store, settings)))
        yield found


async def seen(folder: Path, capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run `neve cluster …` beside the brokers: its exit code, output and errors."""
    code = await asyncio.to_thread(main, ["cluster", *argv, "--store", str(folder)])
    return code, *capfd.readouterr()


async def shown(folder: Path, capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    code, out, _ = await seen(folder, capfd, *argv, "--json")
    return code, json.loads(out)


def partitions(found: dict[str, Any]) -> dict[int, int]:
    return {row["node_id"]: row["partitions"] for row in found["brokers"]}


async def test_load_is_balanced_drained_and_given_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with brokers(tmp_path, 1, 2) as (one, _):
        await one.node.cluster.set_draining(2, draining=True)
        await one.node.topics.create("t", 6)
        await one.node.cluster.set_draining(2, draining=False)
        code, found = await shown(tmp_path, capfd, "status")
        assert (code, partitions(found)) == (0, {1: 6, 2: 0})
        assert (found["partitions_to_move"], found["partitions_without_leader"]) == (3, 0)
        assert [row["state"] for row in found["brokers"]] == ["live", "live"]
        assert [row["rack"] for row in found["brokers"]] == ["r1", "r2"]
        code, out, err = await seen(tmp_path, capfd, "rebalance")
        assert (code, err) == (0, "")
        assert out == "every broker leads what it should: 3 partitions were moved\n"
        assert await shown(tmp_path, capfd, "rebalance") == (
            0,
            {"partitions_moved": 0, "partitions_left": 0},
        )
        assert await shown(tmp_path, capfd, "drain", "1") == (
            0,
            {"node_id": 1, "draining": True, "partitions_left": 0},
        )
        code, out, _ = await seen(tmp_path, capfd, "status")
        assert code == 0
        assert "draining" in out
        assert await shown(tmp_path, capfd, "undrain", "1") == (
            0,
            {"node_id": 1, "draining": False},
        )
        code, found = await shown(tmp_path, capfd, "rebalance")
        assert (code, found) == (0, {"partitions_moved": 3, "partitions_left": 0})


async def test_a_rebalance_is_carried_out_by_brokers_and_not_by_those_that_start_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with brokers(tmp_path, 1) as (one,):
        await one.node.topics.create("t", 4)
        await shown(tmp_path, capfd, "rebalance")
        async with brokers(tmp_path, 2):
            await runtime.sleep(1.5)
            code, found = await shown(tmp_path, capfd, "status")
            assert (code, partitions(found)) == (0, {1: 4, 2: 0})


async def test_a_live_broker_is_not_removed_unless_that_is_forced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with brokers(tmp_path, 1) as (one,):
        other = await Node.start(one.stack.store, small_settings(), node_id=2, host="h", port=1)
        await one.node.cluster.refresh()
        code, out, err = await seen(tmp_path, capfd, "remove", "2")
        assert (code, out) == (2, "")
        assert "node 2 is live: stop it first" in err
        assert await shown(tmp_path, capfd, "remove", "2", "--force") == (
            0,
            {"node_id": 2, "was_live": True},
        )
        code, found = await shown(tmp_path, capfd, "status")
        assert (code, list(partitions(found))) == (0, [1])
        code, out, err = await seen(tmp_path, capfd, "remove", "2")
        assert (code, out) == (2, "")
        assert "node 2 is not in this cluster; its nodes: 1" in err
        await other.abort()


@pytest.mark.parametrize("command", ["drain", "undrain", "remove"])
async def test_a_node_that_does_not_exist_is_named(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with brokers(tmp_path, 1):
        code, out, err = await seen(tmp_path, capfd, command, "7")
        assert (code, out) == (2, "")
        assert "node 7 is not in this cluster; its nodes: 1" in err


async def test_what_cannot_be_done_in_time_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with brokers(tmp_path, 1) as (one,):
        await one.node.topics.create("t", 2)
        code, found = await shown(tmp_path, capfd, "drain", "1", "--wait", "0")
        assert (code, found["partitions_left"]) == (1, 2)
        code, _, err = await seen(tmp_path, capfd, "drain", "1", "--wait", "0")
        assert code == 1
        assert "start another broker, or undrain one" in err
        await one.node.cluster.set_draining(1, draining=False)
        other = await Node.start(one.stack.store, small_settings(), node_id=2, host="h", port=1)
        code, found = await shown(tmp_path, capfd, "rebalance", "--wait", "0")
        assert (code, found) == (1, {"partitions_moved": 0, "partitions_left": 1})
        await other.abort()


async def test_without_a_broker_partitions_have_no_leader_and_none_moves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = connect(str(tmp_path), STORE).store
    node = await Node.start(store, small_settings(), node_id=1)
    await node.topics.create("t", 2)
    await node.close()
    code, out, err = await seen(tmp_path, capfd, "status")
    assert code == 1
    assert "ended" in out
    assert "2 partitions have no leader" in err
    _, _, err = await seen(tmp_path, capfd, "rebalance", "--wait", "0")
    assert "no broker is live" in err


@pytest.mark.parametrize("command", ["status", "drain", "undrain", "rebalance", "remove"])
def test_every_command_has_help_and_needs_a_cluster(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", command, "--help"]) == 0
    out, _ = capfd.readouterr()
    assert "--json" in out
    node = ["1"] if command in ("drain", "undrain", "remove") else []
    assert main(["cluster", command, *node, "--store", str(tmp_path)]) == 1
    _, err = capfd.readouterr()
    assert "this bucket holds no Neve cluster" in err
