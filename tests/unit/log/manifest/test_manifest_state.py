"""What a manifest's numbers amount to: every change, and what it dooms."""

from __future__ import annotations

import pytest

from neve.errors import DamagedError
from neve.log.manifest.records import (
    Add,
    Collected,
    Doom,
    ManifestRecord,
    Reindex,
    Removal,
    Replace,
    Runs,
    Skip,
    Start,
    removal,
)
from neve.log.manifest.state import (
    DoomedRun,
    ManifestRules,
    StateBundle,
    doomed_since,
    states_since,
)
from support.manifest_rows import folded, run_of, segment

A, B, C = segment(0), segment(10), segment(20)
THREE = folded(Add((A, B)), Add((C,)))


def test_added_segments_are_listed_in_order() -> None:
    assert THREE.loose == (A, B, C)
    assert (THREE.start, THREE.next) == (0, 30)


@pytest.mark.parametrize("base", [0, 29, 31, 40])
def test_an_added_segment_must_continue_the_log(base: int) -> None:
    with pytest.raises(DamagedError, match="30 is expected"):
        folded(Add((segment(base),)), base=THREE)


def test_an_addition_of_nothing_is_damage() -> None:
    with pytest.raises(DamagedError):
        folded(Add(()))


@pytest.mark.parametrize("segments", [(B, A), (A, A), (A, segment(5)), (segment(9, 3),)])
def test_an_addition_out_of_order_is_damage(segments: tuple) -> None:
    with pytest.raises(DamagedError):
        folded(Add(segments), base=folded(Start(5)))


def test_what_lies_below_the_start_may_be_left_out() -> None:
    state = folded(Start(50), base=THREE)
    assert folded(Add((segment(50),)), base=state).next == 60
    assert folded(Add((segment(40),)), base=state).next == 50
    with pytest.raises(DamagedError):
        folded(Add((segment(51),)), base=state)


def test_what_was_given_up_for_lost_may_be_left_out() -> None:
    state = folded(Skip(35, 39, 0, "lost"), Skip(30, 34, 0, "lost"), base=THREE)
    assert folded(Add((segment(40),)), base=state).next == 50
    with pytest.raises(DamagedError):
        folded(Add((segment(41),)), base=state)
    with pytest.raises(DamagedError):
        folded(Add((segment(40),)), base=folded(Skip(31, 39, 0, "lost"), base=THREE))


def test_a_replaced_segment_is_doomed_with_its_index() -> None:
    merged = segment(0, 19, name="m")
    state = folded(Replace((removal(A), removal(B)), (merged,)), base=THREE)
    assert state.loose == (merged, C)
    assert state.doomed == (A.key, A.index_key, B.key, B.index_key)
    assert state.next == 30


def test_replacing_the_last_segment_keeps_no_old_bundle() -> None:
    merged = segment(20, 29, name="m")
    state = folded(Replace((removal(C),), (merged,)), base=THREE)
    assert state.state_bundle is None
    assert C.index_key in state.doomed


def test_a_replacement_that_leaves_nothing_keeps_the_last_bundle() -> None:
    """Compaction may leave no record at all; producers and epochs are still needed."""
    rows = tuple(map(removal, (A, B, C)))
    state = folded(Replace(rows, ()), base=THREE)
    assert state.loose == ()
    assert state.state_bundle == StateBundle(C.index_key or "", C.index_bytes, 30)
    assert C.index_key not in state.doomed


def test_the_start_only_rises() -> None:
    state = folded(Start(25), Start(7), base=THREE)
    assert state.start == 25


def test_retention_dooms_what_it_removes() -> None:
    state = folded(Start(10, (removal(A),)), base=THREE)
    assert state.loose == (B, C)
    assert state.doomed == (A.key, A.index_key)
    assert state.state_bundle is None


def test_the_last_bundle_outlives_its_segment_until_the_next_is_added() -> None:
    state = folded(Start(30, tuple(map(removal, (A, B, C)))), base=THREE)
    assert state.state_bundle == StateBundle(C.index_key or "", C.index_bytes, 30)
    assert C.key in state.doomed
    assert C.index_key not in state.doomed
    again = folded(Start(35), base=state)
    assert again.state_bundle == state.state_bundle
    added = folded(Add((segment(30),)), base=state)
    assert added.state_bundle is None
    assert added.doomed[-1] == C.index_key


def test_objects_that_are_not_ours_are_never_doomed() -> None:
    foreign = segment(0, owned=False)
    state = folded(Add((foreign,)))
    replaced = folded(Replace((removal(foreign),), (segment(0, name="m"),)), base=state)
    assert replaced.doomed == ()
    expired = folded(Start(10, (removal(foreign),)), base=state)
    assert expired.doomed == ()
    assert expired.state_bundle is not None
    assert not expired.state_bundle.owned
    assert folded(Add((segment(10),)), base=expired).doomed == ()
    change = Reindex(foreign.key, 0, foreign.index_key, "rebuilt", 9)
    reindexed = folded(change, base=state)
    assert reindexed.doomed == ()
    assert reindexed.loose[0].index_key == "rebuilt"


def test_a_new_index_takes_the_place_of_the_old_one() -> None:
    state = folded(Reindex(B.key, 10, B.index_key, "rebuilt", 9), base=THREE)
    assert (state.loose[1].index_key, state.loose[1].index_bytes) == ("rebuilt", 9)
    assert state.doomed == (B.index_key,)
    assert state.reindexed == ()


def test_an_index_for_a_segment_that_is_no_longer_listed_is_doomed_itself() -> None:
    state = folded(Start(10, (removal(A),)), base=THREE)
    after = folded(Reindex(A.key, 0, A.index_key, "rebuilt", 9), base=state)
    assert after.reindexed == ()
    assert "rebuilt" in after.doomed


def test_a_removal_worked_out_before_a_new_index_dooms_the_new_one() -> None:
    stale = tuple(map(removal, (A, B, C)))
    state = folded(Reindex(A.key, 0, A.index_key, "new-a", 9), base=THREE)
    state = folded(Reindex(C.key, 20, C.index_key, "new-c", 9), Start(30, stale), base=state)
    assert "new-a" in state.doomed
    assert state.state_bundle == StateBundle("new-c", 9, 30)
    assert "new-c" not in state.doomed


def test_dooms_are_kept_until_they_are_carried_out() -> None:
    state = folded(Doom(("x", "y")), Doom(("y", "z")))
    assert state.doomed == ("x", "y", "z")
    assert folded(Collected(("x", "other")), base=state).doomed == ("y", "z")


def test_a_doom_collected_meanwhile_is_still_known_to_one_who_read_on() -> None:
    base = folded(Doom(("old",)))
    records = [ManifestRecord((Doom(("x",)),)), ManifestRecord((Collected(("x", "old")),))]
    assert doomed_since(base, records) == {"old", "x"}
    together = [ManifestRecord((Doom(("y",)), Collected(("y",))))]
    assert doomed_since(base, together) == {"old", "y"}
    assert len(list(states_since(base, together))) == 3


# --- runs


RUN = run_of("run", (A, B))
GATHERED = folded(Runs((RUN,)), base=THREE)


def test_segments_move_into_a_run() -> None:
    assert GATHERED.loose == (C,)
    assert GATHERED.runs == (RUN,)
    assert GATHERED.next == 30
    assert GATHERED.doomed == ()


def test_a_segment_removed_from_a_run_is_noted() -> None:
    state = folded(Start(10, (removal(A),)), base=GATHERED)
    assert state.removed == (removal(A),)
    assert state.doomed == (A.key, A.index_key)


def test_a_segment_in_a_run_that_got_another_index_is_noted() -> None:
    change = Reindex(B.key, 10, B.index_key, "rebuilt", 9)
    again = Reindex(B.key, 10, "rebuilt", "rebuilt again", 8)
    state = folded(change, again, base=GATHERED)
    assert state.reindexed == (again,)
    assert state.doomed == (B.index_key, "rebuilt")
    gone = folded(Start(20, (removal(A), removal(B))), base=state)
    assert gone.reindexed == ()
    assert "rebuilt again" in gone.doomed


def test_a_replaced_run_is_noted_with_its_number_and_its_notes_are_dropped() -> None:
    state = folded(Start(10, (removal(A),)), base=GATHERED)
    state = folded(Reindex(B.key, 10, B.index_key, "rebuilt", 9), base=state)
    fresh = run_of("fresh", (B,))
    state = folded(Runs((fresh,), ("run",)), base=state, number=7)
    assert state.runs == (fresh,)
    assert (state.removed, state.reindexed) == ((), ())
    assert state.doomed_runs == (DoomedRun("run", 7),)
    assert folded(Collected(("run",)), base=state).doomed_runs == ()


def test_notes_on_other_runs_stay() -> None:
    other = run_of("other", (C,))
    state = folded(Runs((other,)), Start(30, (removal(A), removal(C))), base=GATHERED)
    state = folded(Runs((run_of("fresh", (B,)),), ("run",)), base=state)
    assert state.removed == (removal(C),)


def test_a_merge_out_of_a_run_is_loose() -> None:
    merged = segment(0, 19, name="m")
    state = folded(Replace((removal(A), removal(B)), (merged,)), base=GATHERED)
    assert state.loose == (merged, C)
    assert [row.key for row in state.removed] == [A.key, B.key]


def test_folding_changes_no_state_given_to_it() -> None:
    before = folded(Doom(("x",)), base=GATHERED)
    copy = ManifestRules().fold(before, 9, ManifestRecord(()))
    folded(Start(30, (removal(A), removal(C))), Doom(("y",)), Add((segment(30),)), base=before)
    assert before == copy


def test_skips_are_never_forgotten() -> None:
    state = folded(Skip(0, 4, 9, "damaged"), Start(10, (removal(A),)), base=THREE)
    assert state.skips == (Skip(0, 4, 9, "damaged"),)


def test_a_removal_without_an_index_dooms_only_the_segment() -> None:
    state = folded(Start(10, (Removal(key=A.key, base=0, last=9),)), base=folded(Runs((RUN,))))
    assert state.doomed == (A.key,)
