"""`neve group`: states, members, lags, and offsets that are moved."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from confluent_kafka import ConsumerGroupState

from neve import runtime
from neve.cli import group_lag, main
from neve.cli.connection import BrokerFlags, Connection
from neve.cli.group_lag import Place
from support.kafka_fakes import FakeCluster, member


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster({"t": {0: (5, 10), 1: (0, 4), 2: (0, 0)}, "u": {0: (0, 100)}})
    made.add_group("busy", ConsumerGroupState.STABLE, member("m1", ("t", 0), ("t", 2)))
    made.add_group("idle", ConsumerGroupState.EMPTY)
    made.offsets["busy"] = {("t", 0): 7, ("t", 1): 4}
    made.offsets["idle"] = {("t", 0): 2, ("t", 1): 1, ("gone", 0): 3}
    monkeypatch.setattr(BrokerFlags, "connect", lambda _: made)
    return made


@pytest.fixture(autouse=True)
def _ages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first unconsumed record of a partition is as many minutes old as its offset says."""

    def timestamps(
        _: Connection, offsets: Mapping[Place, int]
    ) -> tuple[dict[Place, int], dict[Place, int]]:
        return {place: runtime.now_ms() - at * 60_000 for place, at in offsets.items()}, {}

    monkeypatch.setattr(group_lag, "first_timestamps", timestamps)


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capfd.readouterr()
    return code, out, err


def test_list(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "group", "list", "--json")
    assert code == 0
    assert [(row["group"], row["state"]) for row in json.loads(out)] == [
        ("busy", "Stable"),
        ("idle", "Empty"),
    ]
    _, out, _ = run(capfd, "group", "list", "--state", "empty")
    assert [line.split()[0] for line in out.splitlines()] == ["GROUP", "idle"]
    code, _, err = run(capfd, "group", "list", "--state", "nonsense")
    assert code == 2
    assert "--state nonsense: must be one of Stable, Empty" in err


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_group_that_is_divided_anew_is_found_by_kafka_s_name_of_that(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str], state: str
) -> None:
    known = getattr(ConsumerGroupState, state.upper().replace("REBALANCE", "_REBALANCING"))
    cluster.add_group("moving", known, member("m1"))
    _, out, _ = run(capfd, "group", "list", "--state", state, "--json")
    assert json.loads(out) == [{"group": "moving", "state": state, "type": "Unknown"}]


def test_describe_tells_lag_in_records_and_seconds(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capfd, "group", "describe", "busy", "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert (found["state"], found["protocol"], found["coordinator"]["id"]) == ("Stable", "range", 1)
    assert [row["member"] for row in found["members"]] == ["m1"]
    rows = {(row["topic"], row["partition"]): row for row in found["partitions"]}
    assert sorted(rows) == [("t", 0), ("t", 1), ("t", 2)]
    first, second, third = rows["t", 0], rows["t", 1], rows["t", 2]
    assert (first["committed"], first["end"], first["lag"], first["member"]) == (7, 10, 3, "m1")
    assert first["lag_seconds"] == pytest.approx(420, abs=5)
    assert (second["lag"], second["lag_seconds"], second["member"]) == (0, 0.0, None)
    assert (third["committed"], third["lag"], third["lag_seconds"]) == (None, None, None)
    assert found["lag"] == 3
    assert found["lag_seconds"] == pytest.approx(420, abs=5)


def test_the_lag_of_a_group_that_committed_nothing_is_not_known(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.add_group("new", ConsumerGroupState.STABLE, member("m1", ("t", 0)))
    _, out, _ = run(capfd, "group", "describe", "new", "--json")
    assert json.loads(out)[0]["lag"] is None
    _, out, _ = run(capfd, "group", "describe", "new")
    assert out.splitlines()[4].split() == ["lag", "-", "records,", "-"]


def test_describe_past_retention_and_a_deleted_topic(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capfd, "group", "describe", "idle", "--json")
    rows = {(row["topic"], row["partition"]): row for row in json.loads(out)[0]["partitions"]}
    assert rows["t", 0]["lag"] == 5  # 5 to 10: what lay below 5 is gone
    assert rows["t", 0]["lag_seconds"] == pytest.approx(300, abs=5)
    assert (rows["gone", 0]["committed"], rows["gone", 0]["end"], rows["gone", 0]["lag"]) == (
        3,
        None,
        None,
    )


def test_an_end_without_records_has_no_age(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks of transactions are at the end of one partition, an open transaction of the other."""
    ends = {("t", 0): 10, ("t", 1): 3}
    monkeypatch.setattr(group_lag, "first_timestamps", lambda *_: ({}, ends))
    _, out, _ = run(capfd, "group", "describe", "idle", "--json")
    (found,) = json.loads(out)
    rows = {(row["topic"], row["partition"]): row["lag_seconds"] for row in found["partitions"]}
    assert (rows["t", 0], rows["t", 1]) == (0.0, None)


def test_describe_as_tables_and_an_unknown_group(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "group", "describe", "busy", "nope")
    assert code == 1
    assert err == "neve: group nope does not exist: `neve group list` lists the groups\n"
    lines = out.splitlines()
    assert lines[0].split() == ["group", "busy"]
    assert lines[4].split()[:3] == ["lag", "3", "records,"]
    assert lines[-1].split() == ["t", "2", "-", "0", "-", "-", "m1"]


def test_a_dead_group_without_offsets_does_not_exist(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.add_group("late", ConsumerGroupState.DEAD)
    code, _, err = run(capfd, "group", "describe", "late")
    assert code == 1
    assert "group late does not exist" in err


@pytest.mark.parametrize(
    ("argv", "commits"),
    [
        (["--to", "start", "--topics", "t"], [("t", 0, 5), ("t", 1, 0), ("t", 2, 0)]),
        (["--to", "end", "--topic", "t:0,1"], [("t", 0, 10), ("t", 1, 4)]),
        (["--to", "-1", "--topic", "t:1"], [("t", 1, 3)]),
        (["--to", "+1", "--topic", "t:1"], [("t", 1, 1)]),
        (["--to", "2", "--topic", "t:0,1"], [("t", 0, 5), ("t", 1, 2)]),
        (["--to", "99", "--topic", "t:0"], [("t", 0, 10)]),
        (["--to", "7", "--topics", "u", "--allow-new-topics"], [("u", 0, 7)]),
        (["--to", "@1700000000000", "--topic", "t:0,1"], [("t", 0, 6), ("t", 1, 4)]),
    ],
)
def test_seek_commits(
    argv: list[str],
    commits: list[tuple[str, int, int]],
    cluster: FakeCluster,
    capfd: pytest.CaptureFixture[str],
) -> None:
    cluster.times["t", 0, 1_700_000_000_000] = 6
    code, out, err = run(capfd, "group", "seek", "idle", *argv, "--json")
    assert (code, err) == (0, "")
    assert cluster.calls == [("commit", *each) for each in commits]
    rows = json.loads(out)["partitions"]
    assert [(row["topic"], row["partition"], row["after"]) for row in rows] == commits


def test_seek_without_topics_moves_what_is_committed(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    del cluster.offsets["idle"]["gone", 0]
    code, out, _ = run(capfd, "group", "seek", "idle", "--to", "end")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["t", "0", "2", "10"],
        ["t", "1", "1", "4"],
    ]
    assert cluster.calls == [("commit", "t", 0, 10), ("commit", "t", 1, 4)]


def test_a_dry_run_commits_nothing(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "group", "seek", "idle", "--to", "end", "--topics", "t", "--dry-run")
    assert code == 0
    assert out.splitlines()[-1] == "dry run: no offset was committed"
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["busy", "--to", "start"], "group busy has 1 members (it is Stable): stop them first"),
        (["idle", "--to", "start", "--topics", "u"], "--allow-new-topics"),
        (["idle", "--to", "start", "--topics", "nope", "--allow-new-topics"], "does not exist"),
        (["idle", "--to", "start", "--topic", "t:9"], "partition 9 does not exist in topic t"),
        (["fresh", "--to", "start"], "has no committed offsets"),
    ],
)
def test_seek_refuses(
    argv: list[str], told: str, cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "group", "seek", *argv)
    assert (code, out) == (1, "")
    assert told in err
    assert len(err.splitlines()) == 1
    assert cluster.calls == []


@pytest.mark.parametrize(
    "argv",
    [
        ["seek", "idle"],
        ["seek", "idle", "--to", "10:20"],
        ["seek", "idle", "--to", "soon"],
        ["seek", "idle", "--to", "end", "--topic", "t:x"],
        ["seek", "idle", "--to", "end", "--topic", ":1"],
        ["seek", "idle", "--to", "end", "--topics", "t", "--topic", "t:1"],
        ["describe"],
        ["delete"],
    ],
)
def test_what_is_not_understood_ends_with_2(
    argv: list[str], cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "group", *argv)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_delete(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "group", "delete", "busy", "idle", "nope")
    assert (code, out) == (1, "deleted idle\n")
    assert err.splitlines() == [
        "neve: group busy still has members: stop them first",
        "neve: group nope does not exist: `neve group list` lists the groups",
    ]
