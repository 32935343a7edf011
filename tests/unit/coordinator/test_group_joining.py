"""Becoming a member: ids, protocols, leaders, limits, the wait for the first generation."""

from __future__ import annotations

import pytest

from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_lifecycle import NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_MEMBER_MS_MAX
from neve.coordinator.group_messages import GroupState, JoinedMember
from support.group_scene import RANGE, REBALANCE_MS, SESSION_MS, Scene, subscription


def test_one_member_leads_its_own_generation() -> None:
    scene = Scene()
    reply = scene.join().reply
    assert reply.error is None
    assert (reply.generation, reply.protocol_type, reply.protocol_name) == (1, "consumer", "range")
    assert reply.member_id == reply.leader_id == "m-1"
    assert reply.members == (JoinedMember("m-1", None, RANGE[0][1]),)
    assert scene.state is GroupState.COMPLETING


# --- the round trip for an id


def test_a_client_without_an_id_is_sent_back_with_one() -> None:
    scene = Scene()
    first = scene.join(id_round_trip=True).reply
    assert first.error is GroupError.MEMBER_ID_REQUIRED
    assert first.member_id == "m-1"
    assert (scene.state, len(scene.group.members)) == (GroupState.EMPTY, 0)
    second = scene.join(first.member_id, id_round_trip=True).reply
    assert (second.error, second.member_id) == (None, "m-1")


def test_an_id_that_nobody_comes_back_with_expires() -> None:
    scene = Scene()
    given = scene.join(id_round_trip=True).reply.member_id
    scene.pass_time(SESSION_MS)
    assert scene.group.is_forgettable
    assert scene.join(given, id_round_trip=True).error is GroupError.UNKNOWN_MEMBER


def test_an_id_is_not_kept_as_long_as_the_session_it_asks_for() -> None:
    scene = Scene()
    [first] = scene.stable(1, session_timeout_ms=1_800_000)
    scene.join(id_round_trip=True, session_timeout_ms=1_800_000)
    again = scene.join(first, session_timeout_ms=1_800_000)
    scene.pass_time(PENDING_MEMBER_MS_MAX)
    assert again.reply.generation == 2, "nobody else is waited for"


def test_a_rebalance_waits_for_who_was_given_an_id() -> None:
    scene = Scene()
    [first] = scene.stable(1)
    given = scene.join(id_round_trip=True).reply.member_id
    again = scene.join(first)
    assert again.reply is None, "the pending member is waited for"
    scene.join(given)
    assert again.reply.generation == 2
    assert [each.member_id for each in again.reply.members] == [first, given]


@pytest.mark.parametrize("how", ["expires", "leaves"])
def test_a_pending_member_that_goes_away_holds_up_nothing(how: str) -> None:
    scene = Scene()
    [first] = scene.stable(1)
    given = scene.join(id_round_trip=True).reply.member_id
    again = scene.join(first)
    if how == "leaves":
        assert scene.leave(given) is None
    else:
        scene.pass_time(SESSION_MS)
    assert again.reply.generation == 2
    assert len(again.reply.members) == 1


def test_ids_are_given_ahead_only_to_dynamic_members() -> None:
    scene = Scene()
    static = scene.join(instance="i", id_round_trip=True)
    assert static.error is None
    given = scene.join(id_round_trip=True).reply.member_id
    assert scene.join(given, instance="other").error is GroupError.UNKNOWN_MEMBER


def test_an_unknown_id_is_refused() -> None:
    scene = Scene()
    scene.stable(1)
    refused = scene.join("stranger").reply
    assert (refused.error, refused.member_id) == (GroupError.UNKNOWN_MEMBER, "stranger")


# --- limits


@pytest.mark.parametrize(
    ("timeout_ms", "good"), [(5_999, False), (6_000, True), (1_800_001, False)]
)
def test_a_session_has_bounds(timeout_ms: int, good: bool) -> None:
    ticket = Scene().join(session_timeout_ms=timeout_ms)
    assert ticket.error is (None if good else GroupError.INVALID_SESSION_TIMEOUT)


def test_a_full_group_takes_nobody_else() -> None:
    scene = Scene(size_max=2)
    first, _ = scene.stable(2)
    refused = scene.join().reply
    assert (refused.error, refused.member_id) == (GroupError.GROUP_FULL, "")
    assert scene.state is GroupState.STABLE
    assert scene.join(first).is_waiting, "a member may join again"


def test_a_full_group_that_rebalances_loses_who_comes_last() -> None:
    scene = Scene(size_max=1, initial_rebalance_delay_ms=100)
    scene.join()
    assert scene.join().error is GroupError.GROUP_FULL


def test_a_static_member_comes_back_to_a_full_group() -> None:
    scene = Scene(size_max=1)
    scene.stable(1, instance="i")
    ticket = scene.join(instance="i")
    scene.commit()
    assert ticket.error is None


def test_what_members_bring_is_bounded() -> None:
    scene = Scene(metadata_bytes_max=1024)
    large = (("range", bytes(600)),)
    [first] = scene.stable(1, protocols=large)
    assert scene.join(protocols=large).error is GroupError.GROUP_FULL
    assert scene.join(first, protocols=large).error is None, "its own is not counted twice"


def test_pending_ids_are_bounded() -> None:
    scene = Scene(size_max=2)
    answers = [scene.join(id_round_trip=True).error for _ in range(3)]
    required = GroupError.MEMBER_ID_REQUIRED
    assert answers == [required, required, GroupError.GROUP_FULL]


# --- protocols


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_first_member_must_name_a_type_and_a_protocol(changes: dict[str, object]) -> None:
    scene = Scene()
    assert scene.join(**changes).error is GroupError.INCONSISTENT_PROTOCOL  # type: ignore[arg-type]
    assert scene.group.is_forgettable


def test_all_members_have_one_type() -> None:
    scene = Scene()
    scene.stable(1)
    refused = scene.join(protocol_type="connect")
    assert refused.error is GroupError.INCONSISTENT_PROTOCOL
    assert scene.state is GroupState.STABLE


def test_all_members_have_a_protocol_in_common() -> None:
    scene = Scene()
    scene.stable(1)
    refused = scene.join(protocols=(("sticky", b""),))
    assert refused.error is GroupError.INCONSISTENT_PROTOCOL


def test_most_votes_decide_among_what_all_support() -> None:
    scene = Scene(initial_rebalance_delay_ms=100)
    tickets = [
        scene.join(protocols=(("only mine", b""), ("range", b"1"), ("sticky", b"1"))),
        scene.join(protocols=(("sticky", b"2"), ("range", b"2"))),
        scene.join(protocols=(("sticky", b"3"), ("range", b"3"))),
    ]
    scene.pass_time(200)
    assert [each.reply.protocol_name for each in tickets] == ["sticky"] * 3
    assert [each.metadata for each in tickets[0].reply.members] == [b"1", b"2", b"3"]


def test_of_equal_votes_the_first_member_s_counts() -> None:
    scene = Scene(initial_rebalance_delay_ms=100)
    first = scene.join(protocols=(("range", b""), ("sticky", b"")))
    scene.join(protocols=(("sticky", b""), ("range", b"")))
    scene.pass_time(200)
    assert first.reply.protocol_name == "range"


def test_members_move_to_another_protocol_one_by_one() -> None:
    """The way from eager to cooperative: both first, then the old one is left out."""
    scene = Scene()
    members = scene.stable(2)
    old, both, new = RANGE, (RANGE[0], ("sticky", b"")), (("sticky", b""),)
    for steps, chosen in (((both, old), "range"), ((both, both), "range"), ((new, both), "sticky")):
        for member_id, protocols in zip(members, steps, strict=True):
            last = scene.join(member_id, protocols=protocols)
        assert (last.error, scene.group.protocol_name) == (None, chosen)
        scene.share_out(members)


# --- leaders


def test_the_first_member_leads_and_only_it_is_told_of_all() -> None:
    scene = Scene(initial_rebalance_delay_ms=100)
    tickets = [scene.join() for _ in range(3)]
    scene.pass_time(200)
    assert {each.reply.leader_id for each in tickets} == {"m-1"}
    assert [len(each.reply.members) for each in tickets] == [3, 0, 0]


def test_when_the_leader_leaves_another_one_leads() -> None:
    scene = Scene()
    leader, other = scene.stable(2)
    scene.leave(leader)
    reply = scene.join(other).reply
    assert reply.leader_id == other
    assert [each.member_id for each in reply.members] == [other]


def test_a_leader_that_does_not_rejoin_leads_no_longer() -> None:
    scene = Scene()
    leader, other = scene.stable(2)
    ticket = scene.join(other, protocols=(("range", subscription("payments")),))
    scene.pass_time(REBALANCE_MS, leader)
    assert ticket.reply.leader_id == other
    assert scene.beat(leader) is GroupError.UNKNOWN_MEMBER


# --- the delay before the first generation


def test_an_empty_group_waits_for_further_members() -> None:
    scene = Scene(initial_rebalance_delay_ms=3_000)
    first = scene.join()
    scene.pass_time(2_999)
    assert first.reply is None
    scene.pass_time(1)
    assert first.reply.generation == 1


def test_whoever_comes_meanwhile_prolongs_the_delay_up_to_the_rebalance_time_out() -> None:
    scene = Scene(initial_rebalance_delay_ms=3_000)
    first = scene.join(rebalance_timeout_ms=8_000)
    for _ in range(4):
        scene.pass_time(1_900)
        assert first.reply is None
        scene.join(rebalance_timeout_ms=8_000)
    scene.pass_time(400)
    assert first.reply.generation == 1, "8 s after it began"
    assert len(first.reply.members) == 5


def test_a_group_that_was_in_use_waits_just_once() -> None:
    scene = Scene(initial_rebalance_delay_ms=3_000)
    first = scene.join()
    scene.pass_time(3_000)
    scene.leave(first.reply.member_id)
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, 2)
    again = scene.join()
    scene.pass_time(1_000)
    scene.join()
    scene.pass_time(2_000)
    assert again.reply.generation == 3


def test_a_new_member_that_waits_too_long_is_given_up() -> None:
    scene = Scene()
    first, _ = scene.stable(2, rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    newcomer = scene.join(rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    scene.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS - 1, first)
    assert newcomer.reply is None
    scene.pass_time(1, first)
    assert newcomer.error is GroupError.UNKNOWN_MEMBER
    assert scene.beat(newcomer.name) is GroupError.UNKNOWN_MEMBER
