"""Static members: they keep their place when they restart, and their former selves are fenced."""

from __future__ import annotations

import pytest

from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import GroupState, Identity, ReplacementSave
from support.group_scene import RANGE, REBALANCE_MS, SESSION_MS, Scene, subscription


def stable(scene: Scene, *instances: str | None) -> list[str]:
    """A stable group of static members (None: a dynamic one), the first leads."""
    tickets = [scene.join(instance=each) for each in instances]
    members = [each.member_id for each in scene.group.members]
    for instance, member_id in zip(instances, members, strict=True):
        if scene.state is GroupState.PREPARING:
            tickets.append(scene.join(member_id, instance=instance))
    scene.share_out(members)
    return members


def test_a_restart_disturbs_nobody() -> None:
    scene = Scene()
    leader, old = stable(scene, "a", "b")
    generation = scene.group.generation
    ticket = scene.join(instance="b")
    assert scene.state is GroupState.STABLE
    assert ticket.reply is None, "its new id is told when it is committed"
    [save] = scene.saves
    assert isinstance(save, ReplacementSave)
    assert [each.assignment for each in save.snapshot.members] == [b"part 0", b"part 1"]
    scene.commit()
    reply = ticket.reply
    assert (reply.error, reply.generation, reply.leader_id) == (None, generation, leader)
    assert reply.member_id not in (old, "")
    assert scene.sync(reply.member_id).reply.assignment == b"part 1"
    assert [each.member_id for each in scene.group.members] == [leader, reply.member_id]


def test_a_restart_does_not_wait_for_a_store_that_hangs() -> None:
    scene = Scene(offsets_timeout_ms=5_000)
    leader, old = stable(scene, "a", "b")
    ticket = scene.join(instance="b")
    scene.pass_time(5_000, leader)
    assert ticket.error is GroupError.UNAVAILABLE
    assert scene.beat(old, instance="b") is None, "it is as if nobody had come"
    scene.commit()
    assert scene.beat(old, instance="b") is None
    again = scene.join(instance="b")
    scene.commit()
    assert scene.sync(again.reply.member_id).reply.assignment == b"part 1"
    assert scene.beat(old, instance="b") is GroupError.FENCED_INSTANCE


def test_its_former_self_is_fenced() -> None:
    scene = Scene()
    _, old = stable(scene, "a", "b")
    scene.join(instance="b")
    scene.commit()
    fenced = GroupError.FENCED_INSTANCE
    assert scene.beat(old, instance="b") is fenced
    assert scene.sync(old, instance_id="b").error is fenced
    assert scene.join(old, instance="b").error is fenced
    assert scene.commit_check(old, generation=scene.group.generation, instance="b") is fenced
    assert scene.leave(old, "b") is fenced
    assert scene.beat(old) is GroupError.UNKNOWN_MEMBER, "without its instance it is nobody"


def test_a_former_self_that_waits_is_told_at_once() -> None:
    scene = Scene()
    leader, old = stable(scene, "a", "b")
    scene.join(leader, instance="a")
    waiting = scene.join(old, instance="b")
    assert waiting.error is None
    syncing = scene.sync(old)
    twin = scene.join(instance="b")
    assert syncing.error is GroupError.FENCED_INSTANCE
    assert twin.reply is None
    assert scene.state is GroupState.PREPARING, "the leader may have assigned to the old id"
    scene.join(leader, instance="a")
    assert twin.error is None


def test_two_twins_that_join_while_members_gather() -> None:
    scene = Scene()
    leader, _ = stable(scene, "a", "b")
    scene.join(leader, instance="a")
    first, second = scene.join(instance="b"), None
    assert first.error is None
    scene.share_out([each.member_id for each in scene.group.members])
    scene.join(leader, instance="a")
    second = scene.join(first.reply.member_id, instance="b")
    assert second.error is None


def test_a_leader_that_restarts_is_told_to_skip_the_assignment() -> None:
    scene = Scene()
    stable(scene, "a", "b")
    ticket = scene.join(instance="a", knows_skip_assignment=True)
    scene.commit()
    reply = ticket.reply
    assert reply.skip_assignment
    assert reply.leader_id == reply.member_id == scene.group.members.leader_id
    assert len(reply.members) == 2


def test_a_leader_that_cannot_skip_is_not_told_that_it_leads() -> None:
    scene = Scene()
    old, _ = stable(scene, "a", "b")
    ticket = scene.join(instance="a")
    scene.commit()
    reply = ticket.reply
    assert (reply.leader_id, reply.skip_assignment, reply.members) == (old, False, ())
    assert scene.group.members.leader_id == reply.member_id


def test_a_follower_has_nothing_to_skip() -> None:
    scene = Scene()
    leader, _ = stable(scene, "a", "b")
    ticket = scene.join(instance="b", knows_skip_assignment=True)
    scene.commit()
    assert (ticket.reply.skip_assignment, ticket.reply.leader_id) == (False, leader)


def test_what_it_owned_is_no_change() -> None:
    scene = Scene()
    stable(scene, "a", "b")
    owning = (("range", subscription("orders", owned=b"what it owned")),)
    ticket = scene.join(instance="b", protocols=owning)
    scene.commit()
    assert (ticket.error, scene.state) == (None, GroupState.STABLE)


@pytest.mark.parametrize(
    "protocols",
    [
        pytest.param((("range", subscription("orders", "payments")),), id="other topics"),
        pytest.param((("sticky", b""), ("range", RANGE[0][1])), id="another favourite"),
    ],
)
def test_other_wishes_move_the_group_on(protocols: tuple[tuple[str, bytes], ...]) -> None:
    scene = Scene()
    both = (("range", RANGE[0][1]), ("sticky", b""))
    first = scene.join(instance="a", protocols=both).reply.member_id
    scene.share_out([first])
    scene.join(instance="a", protocols=protocols)
    if protocols[0][0] == "sticky":
        assert scene.group.protocol_name == "sticky"
    assert scene.group.generation == 2


def test_a_record_that_fails_brings_the_old_member_back() -> None:
    scene = Scene()
    _, old = stable(scene, "a", "b")
    ticket = scene.join(instance="b", session_timeout_ms=20_000)
    scene.fail(GroupError.NOT_COORDINATOR)
    assert (ticket.error, ticket.reply.member_id) == (GroupError.NOT_COORDINATOR, "")
    assert scene.beat(old, instance="b") is None
    member = scene.group.members.get(old)
    assert member is not None
    assert member.session_timeout_ms == SESSION_MS
    again = scene.join(instance="b")
    scene.commit()
    assert again.error is None


def test_a_rebalance_answers_who_waits_for_the_record() -> None:
    scene = Scene()
    leader, _ = stable(scene, "a", "b")
    ticket = scene.join(instance="b")
    scene.join(leader, instance="a")
    assert ticket.reply.generation == scene.group.generation
    assert scene.state is GroupState.COMPLETING
    scene.commit()
    assert scene.state is GroupState.COMPLETING


def test_a_restart_on_a_restart_fences_the_one_between() -> None:
    scene = Scene()
    stable(scene, "a", "b")
    between = scene.join(instance="b")
    last = scene.join(instance="b")
    assert between.error is GroupError.FENCED_INSTANCE
    scene.commit()
    assert last.error is None
    assert len(scene.group.members) == 2


def test_a_static_member_is_kept_though_it_does_not_rejoin_until_its_session_ends() -> None:
    scene = Scene()
    leader, away = stable(scene, None, "b")
    scene.join(leader)
    scene.pass_time(REBALANCE_MS, away)
    assert [each.member_id for each in scene.group.members] == [leader, away]
    scene.sync(leader, {away: b"kept"})
    scene.commit()
    scene.pass_time(SESSION_MS, leader)
    assert [each.member_id for each in scene.group.members] == [leader]


def test_an_absent_static_leader_leads_no_longer() -> None:
    scene = Scene()
    absent, other = stable(scene, "a", None)
    scene.join(other, protocols=(("range", subscription("payments")),))
    ticket = scene.join(other, protocols=(("range", subscription("payments")),))
    scene.pass_time(REBALANCE_MS, absent)
    assert ticket.reply.leader_id == other
    assert [each.member_id for each in ticket.reply.members] == [absent, other]


def test_a_rebalance_that_only_absent_static_members_could_join_waits() -> None:
    scene = Scene()
    leader, away = stable(scene, None, "b")
    scene.leave(leader)
    generation = scene.group.generation
    scene.pass_time(2 * REBALANCE_MS, away)
    assert (scene.state, scene.group.generation) == (GroupState.PREPARING, generation)
    ticket = scene.join(away, instance="b")
    assert ticket.reply.leader_id == away


def test_an_absent_static_member_expires_and_the_group_is_empty() -> None:
    scene = Scene()
    leader, _ = stable(scene, None, "b")
    scene.leave(leader)
    scene.pass_time(SESSION_MS)
    assert scene.state is GroupState.EMPTY


def test_a_static_member_leaves_by_its_instance_alone() -> None:
    scene = Scene()
    _, second = stable(scene, "a", "b")
    leaving = [Identity("", "b"), Identity("", "nobody"), Identity(second, "a"), Identity("", None)]
    errors, effects = scene.group.leave(scene.now_ms, leaving)
    scene.take(effects)
    unknown = GroupError.UNKNOWN_MEMBER
    assert errors == [None, unknown, GroupError.FENCED_INSTANCE, unknown]
    assert len(scene.group.members) == 1
    assert scene.join(instance="b").is_waiting, "it may come back as a new member"


def test_an_instance_that_was_never_here_is_nobody() -> None:
    scene = Scene()
    [member] = stable(scene, "a")
    assert scene.beat(member, instance="z") is GroupError.UNKNOWN_MEMBER
    assert scene.join(member, instance="z").error is GroupError.UNKNOWN_MEMBER
