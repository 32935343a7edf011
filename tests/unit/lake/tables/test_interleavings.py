"""Whatever the order, whoever dies: each offset is in the table or among the letters, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from neve.lake.tables import commits as commits_module
from neve.lake.tables import dead_letter_replay as replaying_module
from neve.lake.tables import dead_letters as letters_module
from neve.lake.tables import history as history_module
from neve.lake.tables.dead_letter_replay import commit_replay
from neve.lake.tables.history import TableState, state_of, summary_of
from neve.lake.tables.progress import RangeState, range_state
from unit.lake.tables import interleaving as interleaving_module
from unit.lake.tables.interleaving import World


@pytest.mark.parametrize("seed", [2, 3])
def test_each_offset_is_there_once(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    world.play()
    assert world.wrong() == []


def test_letters_are_replayed_in_between(tmp_path: Path) -> None:
    """Or the two who do it would show nothing."""
    world = World(tmp_path, 6)
    world.play()
    assert world.wrong() == []
    assert world.replays > 1


def test_a_table_is_set_to_what_it_had_left_in_between(tmp_path: Path) -> None:
    """Or the stranger who does it would show nothing."""
    world = World(tmp_path, 1_003, end=40)
    world.play()
    assert world.wrong() == []
    assert world.set_right > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1_000, 1_060))
def test_each_offset_is_there_once_in_many_orders(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed, end=40)
    world.play()
    assert world.wrong() == []


# --- planted bugs


def newest_only(table: Table) -> TableState:
    """Offsets from the newest snapshot alone, and none where it has none."""
    snapshot = table.metadata.current_snapshot()
    text = None if snapshot is None else summary_of(snapshot).get("neve.progress")
    return TableState() if text is None else history_module._state(text, "table")


def plant_newest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commits_module, letters_module, history_module):
        monkeypatch.setattr(module, "state_of", newest_only)


def plant_unchecked_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refused commit the files are put onto whatever the table is by then."""
    tried: list[Any] = []

    def looked_once(current: Any, expected: Any, new: Any) -> RangeState:
        if any(each is new for each in tried):
            return RangeState.OPEN
        tried.append(new)
        return range_state(current, expected, new)

    monkeypatch.setattr(commits_module, "range_state", looked_once)


def plant_no_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters are committed first, but nothing keeps a rival's out of line."""

    def unclaimed(table: Table) -> TableState:
        return TableState(state_of(table).progress)

    def only_look(table: Table, claim: Any, expected: Any, new: Any) -> Any:
        current = state_of(table.refresh()).progress
        standing = range_state(current, expected, new)
        return (
            current
            if standing is RangeState.OPEN
            else letters_module.closed_outcome(current, standing)
        )

    def without(*arguments: Any) -> Any:
        claimed = letters_module.commit_dead_letters(*arguments)
        return None if isinstance(claimed, letters_module.Claim) else claimed

    monkeypatch.setattr(letters_module, "_claim", only_look)
    monkeypatch.setattr(commits_module, "state_of", unclaimed)
    monkeypatch.setattr(commits_module, "commit_dead_letters", without)


def plant_unnamed_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a replay are committed without a word about the letters, which go afterwards."""
    replace = replaying_module.replace

    def unnamed(state: TableState, **changes: Any) -> TableState:
        return replace(state, **{**changes, "replayed": ()})

    def take_out(table: Table, letters: Table, files: Any, runs: Any, seen: Any) -> bool:
        if not commit_replay(table, letters, files, runs, seen):
            return False
        replaying_module._remove_letters(letters.refresh(), replaying_module.LetterRuns(runs))
        return True

    monkeypatch.setattr(replaying_module, "replace", unnamed)
    monkeypatch.setattr(interleaving_module, "commit_replay", take_out)


def plant_unseen_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are committed even if the letters have changed since they were looked at."""
    monkeypatch.setattr(replaying_module, "_snapshot_id", lambda _: None)


@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (plant_newest_only, 2),
        (plant_unchecked_offsets, 4),
        (plant_no_claims, 1),
        (plant_unnamed_letters, 6),
        (plant_unseen_letters, 36),
    ],
)
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Any, first_seed: int
) -> None:
    plant(monkeypatch)
    for seed in range(first_seed, first_seed + 15):
        world = World(tmp_path / str(seed), seed)
        world.play()
        if world.wrong():
            return
    pytest.fail("nothing went wrong")
