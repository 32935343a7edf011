"""From one generation to the next: syncing, rebalancing, leaving, time-outs."""

from __future__ import annotations

import pytest

from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import EmptySave, GroupState
from support.group_scene import RANGE, REBALANCE_MS, SESSION_MS, Scene, subscription

CHANGED = (("range", subscription("payments")),)


def joined(scene: Scene, count: int) -> list[str]:
    """Members that have joined a generation and not synced yet."""
    members = scene.stable(count)
    for member_id in reversed(members):
        scene.join(member_id)  # followers first are told the old generation, the leader moves it
    for member_id in members[1:]:
        scene.join(member_id)
    assert scene.state is GroupState.COMPLETING
    return members


# --- assignments


def test_every_member_gets_its_part_to_the_byte() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    early = scene.sync(follower)
    parts = {leader: bytes(range(256)), follower: b"\x00\x01assignment\xff", "gone": b"?"}
    own = scene.sync(leader, parts)
    assert (early.reply, own.reply) == (None, None), "nothing is told before it is committed"
    scene.commit()
    assert own.reply.assignment == parts[leader]
    assert early.reply.assignment == parts[follower]
    assert (early.reply.protocol_type, early.reply.protocol_name) == ("consumer", "range")
    assert scene.state is GroupState.STABLE


def test_the_record_holds_the_whole_generation() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    scene.sync(leader, {leader: b"a", follower: b"b"})
    [save] = scene.saves
    assert (save.snapshot.generation, save.snapshot.leader_id) == (2, leader)
    assert [(each.member_id, each.assignment) for each in save.snapshot.members] == [
        (leader, b"a"),
        (follower, b"b"),
    ]


def test_a_follower_that_syncs_late_is_answered_from_state() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    scene.sync(leader, {follower: b"late"})
    scene.commit()
    assert scene.sync(follower).reply.assignment == b"late"


def test_whoever_the_leader_left_out_gets_nothing() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    waiting = scene.sync(follower)
    scene.sync(leader, {leader: b"all"})
    scene.commit()
    assert (waiting.error, waiting.reply.assignment) == (None, b"")


def test_assignments_of_a_follower_are_ignored() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    scene.sync(follower, {leader: b"mine", follower: b"mine"})
    assert scene.saves == []


def test_a_store_that_hangs_keeps_nobody_waiting_for_an_assignment() -> None:
    """Heartbeats are answered behind the request that waits: it must not take a session long."""
    scene = Scene(offsets_timeout_ms=5_000)
    leader, follower = joined(scene, 2)
    early = scene.sync(follower)
    scene.pass_time(3_000, leader)
    own = scene.sync(leader, {leader: b"a", follower: b"b"})
    scene.pass_time(4_999)
    assert (early.reply, own.reply) == (None, None)
    scene.pass_time(1)
    again = GroupError.UNAVAILABLE
    assert (early.error, own.error) == (again, again)
    assert scene.beat(leader) is None


def test_an_assignment_that_lands_late_is_told_to_those_who_asked_again() -> None:
    scene = Scene(offsets_timeout_ms=5_000)
    leader, follower = joined(scene, 2)
    generation = scene.group.generation
    scene.sync(follower)
    scene.sync(leader, {leader: b"a", follower: b"b"})
    for _ in range(10):
        scene.pass_time(5_000, leader, follower)
        assert scene.join(leader).reply.generation == generation
        assert scene.join(follower).reply.generation == generation
        waiting = [scene.sync(leader, {leader: b"other"}), scene.sync(follower)]
        assert [ticket.reply for ticket in waiting] == [None, None]
    assert len(scene.saves) == 1, "one record, however often it is asked for"
    scene.commit()
    assert [ticket.reply.assignment for ticket in waiting] == [b"a", b"b"]
    assert scene.state is GroupState.STABLE


def test_a_member_that_vanishes_while_the_store_hangs_is_out_after_its_session() -> None:
    scene = Scene(offsets_timeout_ms=5_000)
    leader, follower = joined(scene, 2)
    scene.sync(follower)
    scene.sync(leader, {leader: b"a", follower: b"b"})
    scene.pass_time(5_000 + SESSION_MS, leader)
    assert scene.state is GroupState.PREPARING
    assert scene.join(leader).error is None
    assert [each.member_id for each in scene.group.members] == [leader]
    scene.commit()
    assert scene.state is GroupState.COMPLETING, "the late record is of a generation that is over"


def test_syncing_again_while_the_record_is_on_its_way_gives_the_first_assignment() -> None:
    scene = Scene()
    leader, _ = joined(scene, 2)
    lost = scene.sync(leader, {leader: b"first"})
    again = scene.sync(leader, {leader: b"second"})
    assert lost.error is GroupError.REBALANCE_IN_PROGRESS, "its answer went nowhere"
    assert len(scene.saves) == 1
    scene.commit()
    assert again.reply.assignment == b"first"


def test_a_record_that_fails_is_shown_to_nobody() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    tickets = [scene.sync(follower), scene.sync(leader, {follower: b"never"})]
    scene.fail(GroupError.UNAVAILABLE)
    assert [each.error for each in tickets] == [GroupError.UNAVAILABLE] * 2
    assert scene.state is GroupState.PREPARING
    for member_id in (leader, follower):
        ticket = scene.join(member_id)
    assert ticket.reply.generation == 3


def test_a_rebalance_overtakes_a_record_on_its_way() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    waiting = scene.sync(leader, {leader: b"old"})
    scene.join(follower, protocols=CHANGED)
    assert waiting.error is GroupError.REBALANCE_IN_PROGRESS
    scene.commit()
    assert scene.state is GroupState.PREPARING, "the committed record has come too late"
    scene.join(leader)
    late = scene.sync(follower)
    scene.sync(leader, {follower: b"new"})
    scene.commit()
    assert late.reply.assignment == b"new"


def test_a_failed_record_of_an_earlier_generation_harms_nobody() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    scene.sync(leader, {})
    old, scene.saves = scene.saves, []
    scene.join(follower, protocols=CHANGED)
    scene.join(leader)
    waiting = scene.sync(leader, {leader: b"x"})
    new, scene.saves = scene.saves, old
    scene.fail()
    assert waiting.reply is None
    scene.saves = new
    scene.commit()
    assert waiting.reply.assignment == b"x"


def test_a_record_of_an_earlier_generation_shows_nothing_to_the_next() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    scene.sync(leader, {leader: b"old", follower: b"old"})
    scene.join(follower, protocols=CHANGED)
    scene.join(leader)
    waiting = scene.sync(follower)
    scene.commit()
    assert (waiting.reply, scene.state) == (None, GroupState.COMPLETING)
    scene.sync(leader, {leader: b"new", follower: b"new"})
    scene.commit()
    assert waiting.reply.assignment == b"new"


def test_an_assignment_that_is_too_large_fails_for_all() -> None:
    scene = Scene(metadata_bytes_max=1024)
    leader, follower = joined(scene, 2)
    waiting = scene.sync(follower)
    own = scene.sync(leader, {leader: bytes(2_000)})
    assert [waiting.error, own.error] == [GroupError.ASSIGNMENT_TOO_LARGE] * 2
    assert (scene.saves, scene.state) == ([], GroupState.PREPARING)


# --- who may sync


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 1}, GroupError.ILLEGAL_GENERATION),
        ({"generation": 3}, GroupError.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, GroupError.UNKNOWN_MEMBER),
        ({"protocol_type": "connect"}, GroupError.INCONSISTENT_PROTOCOL),
        ({"protocol_name": "sticky"}, GroupError.INCONSISTENT_PROTOCOL),
    ],
)
def test_a_sync_is_checked(changes: dict[str, object], error: GroupError) -> None:
    scene = Scene()
    leader, _ = joined(scene, 2)
    assert scene.sync(leader, **changes).error is error  # type: ignore[arg-type]


def test_a_sync_with_the_protocol_of_its_group_waits_for_the_record() -> None:
    scene = Scene()
    leader, _ = joined(scene, 2)
    assert scene.sync(leader, protocol_type="consumer", protocol_name="range").is_waiting


def test_a_stranger_does_not_sync() -> None:
    scene = Scene()
    scene.stable(1)
    assert scene.sync("stranger").error is GroupError.UNKNOWN_MEMBER


def test_while_members_gather_nobody_syncs() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    scene.join(leader)
    assert scene.sync(follower).error is GroupError.REBALANCE_IN_PROGRESS


# --- rebalancing


def test_a_follower_that_joins_again_unchanged_is_told_the_generation() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    reply = scene.join(follower).reply
    assert (reply.error, reply.generation, reply.leader_id) == (None, 1, leader)
    assert reply.members == ()
    assert scene.state is GroupState.STABLE


def test_a_leader_that_joins_again_moves_the_group_on() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    ticket = scene.join(leader)
    assert scene.state is GroupState.PREPARING
    assert scene.beat(follower) is GroupError.REBALANCE_IN_PROGRESS
    scene.join(follower)
    assert ticket.reply.generation == 2


def test_changed_metadata_moves_the_group_on() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    scene.join(follower, protocols=CHANGED)
    reply = scene.join(leader).reply
    assert [each.metadata for each in reply.members] == [RANGE[0][1], CHANGED[0][1]]


def test_a_missed_answer_is_given_again() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    assert len(scene.join(leader).reply.members) == 2
    assert scene.join(follower).reply.generation == 2
    assert scene.state is GroupState.COMPLETING


def test_changed_metadata_after_joining_sends_everybody_back() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    waiting = scene.sync(leader, {})
    scene.join(follower, protocols=CHANGED)
    assert waiting.error is GroupError.REBALANCE_IN_PROGRESS
    assert scene.join(leader).reply.generation == 3


def test_joining_twice_while_members_gather_answers_the_first_request() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    lost = scene.join(leader)
    kept = scene.join(leader)
    assert lost.error is GroupError.REBALANCE_IN_PROGRESS
    scene.join(follower)
    assert kept.reply.generation == 2


def test_cooperative_members_rejoin_with_what_they_own() -> None:
    scene = Scene()
    mine = (("cooperative-sticky", subscription("orders")),)
    leader, follower = scene.stable(2, protocols=mine)
    for step in range(3):
        owned = (("cooperative-sticky", subscription("orders", owned=bytes([step]))),)
        scene.join(follower, protocols=owned)
        assert scene.beat(leader) is GroupError.REBALANCE_IN_PROGRESS
        assert scene.commit_check(leader, generation=scene.group.generation) is None
        reply = scene.join(leader, protocols=mine).reply
        assert reply.generation == step + 2
        assert reply.members[1].metadata == owned[0][1]
        scene.share_out([leader, follower])


def test_who_does_not_rejoin_in_time_is_out() -> None:
    scene = Scene()
    leader, silent = scene.stable(2)
    ticket = scene.join(leader)
    scene.pass_time(REBALANCE_MS - 1, silent)
    assert ticket.reply is None
    scene.pass_time(1, silent)
    assert [each.member_id for each in ticket.reply.members] == [leader]
    assert scene.beat(silent) is GroupError.UNKNOWN_MEMBER


def test_the_slowest_member_s_time_out_counts() -> None:
    scene = Scene()
    leader, slow = scene.stable(2, rebalance_timeout_ms=1_000)
    scene.join(slow, protocols=CHANGED, rebalance_timeout_ms=90_000)
    scene.pass_time(89_999, leader)
    assert scene.state is GroupState.PREPARING
    scene.pass_time(1, leader)
    assert scene.state is GroupState.COMPLETING


def test_who_joins_and_never_syncs_is_out() -> None:
    scene = Scene()
    leader, silent = joined(scene, 2)
    own = scene.sync(leader, {leader: b"x"})
    scene.commit()
    assert own.error is None
    scene.pass_time(REBALANCE_MS, leader, silent)
    assert scene.state is GroupState.PREPARING
    assert scene.beat(silent) is GroupError.UNKNOWN_MEMBER
    assert len(scene.join(leader).reply.members) == 1


def test_a_leader_that_never_syncs_does_not_hold_up_the_others() -> None:
    scene = Scene()
    leader, follower = joined(scene, 2)
    waiting = scene.sync(follower)
    scene.pass_time(REBALANCE_MS, leader)
    assert waiting.error is GroupError.REBALANCE_IN_PROGRESS
    assert scene.join(follower).reply.leader_id == follower


# --- leaving and being lost


def test_leaving_moves_the_group_on() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    assert scene.leave(follower) is None
    assert scene.beat(leader) is GroupError.REBALANCE_IN_PROGRESS
    assert scene.leave(follower) is GroupError.UNKNOWN_MEMBER


def test_when_the_last_one_leaves_the_group_is_empty_and_says_so_in_a_record() -> None:
    scene = Scene()
    [member] = scene.stable(1)
    scene.leave(member)
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, 2)
    [save] = scene.saves
    assert isinstance(save, EmptySave)
    assert (save.snapshot.members, save.snapshot.protocol_name) == ((), None)
    scene.commit()
    assert scene.join().reply.generation == 3


def test_leaving_while_waiting_answers_what_waits() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    waiting = scene.join(leader)
    scene.leave(leader)
    assert waiting.error is GroupError.UNKNOWN_MEMBER
    scene.join(follower)
    syncing = scene.sync(follower, {})
    scene.leave(follower)
    assert syncing.error is GroupError.UNKNOWN_MEMBER
    assert scene.state is GroupState.EMPTY


def test_a_session_lasts_as_long_as_there_are_heartbeats() -> None:
    scene = Scene()
    members = scene.stable(2)
    scene.pass_time(10 * SESSION_MS, *members)
    assert scene.state is GroupState.STABLE
    scene.pass_time(SESSION_MS, members[0])
    assert scene.state is GroupState.PREPARING
    assert scene.beat(members[1]) is GroupError.UNKNOWN_MEMBER


def test_who_waits_for_us_is_alive() -> None:
    scene = Scene(offsets_timeout_ms=6 * SESSION_MS)
    leader, follower = scene.stable(2)
    waiting = scene.join(leader)
    scene.pass_time(5 * SESSION_MS, follower)
    assert waiting.reply is None
    scene.join(follower)
    syncing = scene.sync(follower)
    scene.pass_time(5 * SESSION_MS, leader)
    assert syncing.reply is None
    scene.sync(leader, {follower: b"x"})
    scene.pass_time(5 * SESSION_MS)
    scene.commit()
    assert syncing.reply.assignment == b"x", "as long as the record may take"
    scene.pass_time(SESSION_MS - 1)
    assert scene.state is GroupState.STABLE, "sessions begin anew with the answer"
    scene.pass_time(1)
    assert scene.state is GroupState.EMPTY


@pytest.mark.parametrize(
    ("generation", "error"),
    [(1, None), (0, GroupError.ILLEGAL_GENERATION), (2, GroupError.ILLEGAL_GENERATION)],
)
def test_a_heartbeat_tells_of_a_generation_that_is_over(
    generation: int, error: GroupError | None
) -> None:
    scene = Scene()
    [member] = scene.stable(1)
    assert scene.beat(member, generation=generation) is error


def test_heartbeats_are_welcome_between_joining_and_syncing() -> None:
    scene = Scene()
    members = joined(scene, 2)
    assert [scene.beat(each) for each in members] == [None] * 2


# --- who may commit offsets


def test_anybody_commits_to_an_empty_group() -> None:
    assert Scene().commit_check() is None


def test_only_members_commit_to_a_group_with_members() -> None:
    scene = Scene()
    [member] = scene.stable(1)
    assert scene.commit_check() is GroupError.UNKNOWN_MEMBER
    assert scene.commit_check(member) is GroupError.ILLEGAL_GENERATION
    assert scene.commit_check(member, generation=1) is None
    assert scene.commit_check(member, generation=0) is GroupError.ILLEGAL_GENERATION
    assert scene.commit_check("stranger", generation=1) is GroupError.UNKNOWN_MEMBER
    assert scene.commit_check(member, generation=1, instance="i") is GroupError.UNKNOWN_MEMBER


def test_a_member_commits_while_members_gather_but_not_before_it_has_synced() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    scene.join(leader)
    assert scene.commit_check(follower, generation=1) is None
    scene.join(follower)
    assert scene.commit_check(follower, generation=1) is GroupError.ILLEGAL_GENERATION
    assert scene.commit_check(follower, generation=2) is GroupError.REBALANCE_IN_PROGRESS


def test_a_former_member_commits_nothing_to_an_empty_group() -> None:
    scene = Scene()
    [member] = scene.stable(1)
    scene.leave(member)
    assert scene.commit_check(member, generation=1) is GroupError.UNKNOWN_MEMBER
    assert scene.commit_check() is None


def test_committing_is_a_sign_of_life() -> None:
    scene = Scene()
    [member] = scene.stable(1)
    for _ in range(5):
        scene.pass_time(SESSION_MS - 1)
        assert scene.commit_check(member, generation=1) is None
    assert scene.state is GroupState.STABLE


# --- the end


def test_a_dying_group_answers_everybody_and_nobody_after() -> None:
    scene = Scene()
    leader, follower = scene.stable(2)
    joining = scene.join(leader)
    scene.take(scene.group.die(GroupError.NOT_COORDINATOR))
    assert joining.error is GroupError.NOT_COORDINATOR
    gone = GroupError.UNAVAILABLE
    assert scene.join().error is gone
    assert scene.sync(follower).error is gone
    assert scene.beat(follower) is gone
    assert scene.leave(follower) is gone
    assert scene.commit_check() is gone
    assert scene.group.wake_ms is None


def test_a_record_committed_after_the_end_changes_nothing() -> None:
    scene = Scene()
    leader, _ = joined(scene, 2)
    syncing = scene.sync(leader, {})
    scene.take(scene.group.die(GroupError.NOT_COORDINATOR))
    scene.commit()
    assert syncing.error is GroupError.NOT_COORDINATOR
    assert scene.state is GroupState.DEAD


# --- looking at it


def test_a_stable_group_is_described_with_what_its_members_have() -> None:
    scene = Scene()
    leader, follower = scene.stable(2, client_id="app", client_host="/10.0.0.1")
    shown = scene.group.describe()
    assert (shown.state, shown.protocol_type, shown.protocol_name) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [each.member_id for each in shown.members] == [leader, follower]
    assert [each.assignment for each in shown.members] == [b"part 0", b"part 1"]
    assert shown.members[0].subscription == RANGE[0][1]
    assert (shown.members[0].client_id, shown.members[0].client_host) == ("app", "/10.0.0.1")


def test_a_group_that_rebalances_shows_members_alone() -> None:
    scene = Scene()
    leader, _ = scene.stable(2)
    scene.join(leader)
    shown = scene.group.describe()
    assert (shown.state, shown.protocol_name) == ("PreparingRebalance", "")
    assert [(each.subscription, each.assignment) for each in shown.members] == [(b"", b"")] * 2


@pytest.mark.parametrize(
    ("metadata", "reads_orders", "reads_payments"),
    [
        (subscription("orders"), True, False),
        (b"\x00", True, True),
        (b"\x00\x01\xff\xff", True, True),
    ],
)
def test_what_members_read_is_known_from_their_metadata(
    metadata: bytes, reads_orders: bool, reads_payments: bool
) -> None:
    scene = Scene()
    scene.stable(1, protocols=(("range", metadata),))
    assert scene.group.reads("orders") is reads_orders
    assert scene.group.reads("payments") is reads_payments
