"""A group as its record tells it: what a process that takes over goes on with."""

from __future__ import annotations

from neve.coordinator.group import Group
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import EmptySave, GroupSnapshot, GroupState
from support.group_scene import SESSION_MS, Scene


def restored(snapshot: GroupSnapshot, **settings: int) -> Scene:
    scene = Scene(**settings)
    scene.group, effects = Group.restored(snapshot, scene.settings, scene.now_ms)
    assert effects.responses == effects.saves == []
    return scene


def snapshot_of(count: int) -> tuple[GroupSnapshot, list[str]]:
    scene = Scene()
    members = scene.stable(count)
    return scene.committed[-1].snapshot, members


def test_members_go_on_as_if_nothing_had_happened() -> None:
    snapshot, members = snapshot_of(2)
    scene = restored(snapshot)
    assert (scene.state, scene.group.generation) == (GroupState.STABLE, 1)
    assert [scene.beat(each) for each in members] == [None] * 2
    scene.committed = [EmptySave(snapshot)]
    assert scene.sync(members[1]).reply.assignment == b"part 1"
    assert scene.commit_check(members[0], generation=1) is None
    assert scene.group.members.leader_id == members[0]
    assert scene.group.reads("orders")
    assert not scene.group.reads("payments")


def test_members_have_a_whole_session_to_be_heard_of() -> None:
    snapshot, members = snapshot_of(2)
    scene = restored(snapshot)
    scene.pass_time(SESSION_MS - 1)
    assert scene.state is GroupState.STABLE
    scene.pass_time(1)
    assert scene.state is GroupState.EMPTY
    assert scene.beat(members[0]) is GroupError.UNKNOWN_MEMBER


def test_a_member_may_join_again_with_all_its_protocols() -> None:
    snapshot, [member] = snapshot_of(1)
    scene = restored(snapshot)
    protocols = (("sticky", b""), ("range", b"x"))
    assert scene.join(member, protocols=protocols).reply.generation == 2
    assert scene.group.protocol_name == "sticky"


def test_an_empty_group_is_restored_empty() -> None:
    scene = Scene()
    [member] = scene.stable(1)
    scene.leave(member)
    again = restored(scene.saves[-1].snapshot)
    assert (again.state, again.group.generation) == (GroupState.EMPTY, 2)
    assert again.group.wake_ms is None
    assert not again.group.is_forgettable, "its generation is to be remembered"
    assert again.join().reply.generation == 3


def test_a_group_that_has_become_too_large_rebalances() -> None:
    snapshot, members = snapshot_of(3)
    scene = restored(snapshot, size_max=2)
    assert scene.state is GroupState.PREPARING
    tickets = [scene.join(each) for each in members]
    assert tickets[2].error is GroupError.GROUP_FULL
    assert [each.error for each in tickets[:2]] == [None] * 2
