"""The coordinator of many groups: loading, timers, records, members, looking at groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neve import runtime
from neve.coordinator import table
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import GroupState, Identity, SyncRequest
from neve.coordinator.groups import GroupOverview
from neve.coordinator.table import UNDECIDED_BYTES_MAX
from neve.errors import ClosedError, DamagedError, FencedError, StoreError
from support.group_world import FakeLog, World
from support.scripted_store import in_simulation

HALF_AN_HOUR = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}

# --- generations and their records


@in_simulation
async def test_two_members_share_out_a_topic() -> None:
    async with World() as world:
        first, second = await runtime.gather(world.joined(), world.joined())
        assert first.generation == second.generation == 1
        assert [each.member_id for each in first.members] == [first.member_id, second.member_id]
        assert first.member_id.startswith("app-")
        follower = runtime.spawn(world.synced(second.member_id, 1))
        await runtime.sleep(0.05)
        assert not follower.done()
        parts = {first.member_id: b"0,1", second.member_id: b"2,3"}
        mine = await world.groups.sync(
            SyncRequest(group_id="g", generation=1, member_id=first.member_id, assignments=parts)
        )
        assert (mine.assignment, (await follower).assignment) == (b"0,1", b"2,3")


@in_simulation
async def test_an_assignment_waits_for_its_record() -> None:
    async with World() as world:
        reply = await world.joined()
        world.log.held = True
        waiting = runtime.spawn(world.synced(reply.member_id, 1, own=b"x"))
        await runtime.sleep(3)
        assert not waiting.done()
        await world.log.release()
        assert (await waiting).assignment == b"x"


@in_simulation
async def test_a_store_that_hangs_holds_no_member_back() -> None:
    async with World() as world:
        reply = await world.joined()
        world.log.held = True
        late = runtime.spawn(world.synced(reply.member_id, 1, own=b"x"))
        await runtime.sleep(5.5)
        assert (await late).error is GroupError.UNAVAILABLE
        waiting = runtime.spawn(world.synced(reply.member_id, 1, own=b"y"))
        await runtime.sleep(3)
        await world.log.release()
        assert (await waiting).assignment == b"x"
        assert len(world.log.appends) == 1


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (FencedError("sealed"), GroupError.NOT_COORDINATOR),
        (ClosedError("stopping"), GroupError.NOT_COORDINATOR),
        (StoreError("wal/1", "slow down"), GroupError.UNAVAILABLE),
    ],
)
def test_a_record_that_fails_is_told_in_a_way_that_clients_retry(
    failure: FencedError, error: GroupError | None
) -> None:
    async def run() -> None:
        async with World() as world:
            reply = await world.joined()
            world.log.failure = failure
            assert (await world.synced(reply.member_id, 1, own=b"x")).error is error
            world.log.failure = None
            again = await world.joined(reply.member_id)
            assert again.generation == 2
            assert (await world.synced(reply.member_id, 2, own=b"x")).assignment == b"x"

    runtime.simulate(run(), seed=1)


@in_simulation
async def test_a_group_survives_its_coordinator() -> None:
    async with World() as world:
        member_id, generation = await world.member()
        await world.restart()
        beat = world.groups.heartbeat("g", Identity(member_id), generation)
        assert beat is None
        assert (await world.synced(member_id, generation)).assignment == b"all"
        assert world.groups.describe("g")[1].state is GroupState.STABLE


@in_simulation
async def test_who_waits_hears_that_the_partition_has_gone() -> None:
    async with World() as world:
        await world.member()
        waiting = runtime.spawn(world.joined())
        await runtime.sleep(0.01)
        world.groups.unload(0)
        assert (await waiting).error is GroupError.NOT_COORDINATOR
        assert (await world.joined()).error is GroupError.NOT_COORDINATOR
        assert len(world.groups) == 0


@in_simulation
async def test_closing_answers_who_waits() -> None:
    async with World() as world:
        waiting = runtime.spawn(world.joined())
        await runtime.sleep(0.01)
    assert (await waiting).error is GroupError.NOT_COORDINATOR


@in_simulation
async def test_a_client_that_goes_away_while_it_waits_harms_nobody() -> None:
    async with World() as world:
        gone = runtime.spawn(world.joined())
        await runtime.sleep(0.01)
        gone.cancel()
        reply = await world.joined()
        assert len(reply.members) + (reply.member_id != reply.leader_id) >= 1
        await runtime.sleep(120)
        assert len(world.groups) == 0, "nothing of it was ever recorded"
        assert not world.log.appends


# --- time


@in_simulation
async def test_the_first_generation_comes_after_the_delay() -> None:
    async with World(initial_rebalance_delay_ms=3_000) as world:
        began = runtime.monotonic()
        await world.joined()
        assert runtime.monotonic() - began == pytest.approx(3, abs=0.01)


@in_simulation
async def test_a_member_without_heartbeats_is_out_after_its_session() -> None:
    async with World() as world:
        member_id, generation = await world.member()
        for _ in range(5):
            await runtime.sleep(9)
            assert world.groups.heartbeat("g", Identity(member_id), generation) is None
        await runtime.sleep(10.01)
        unknown = GroupError.UNKNOWN_MEMBER
        assert world.groups.heartbeat("g", Identity(member_id), generation) is unknown
        assert world.groups.describe("g")[1].state is GroupState.EMPTY


@in_simulation
async def test_many_groups_each_keep_their_own_time() -> None:
    async with World() as world:
        names = [f"g{n}" for n in range(50)]
        for name in names:
            await world.member(group_id=name)
            await runtime.sleep(0.1)
        await runtime.sleep(3)
        states = [world.groups.describe(name)[1].state for name in names]
        assert GroupState.EMPTY in states
        assert states == sorted(states), "the earlier ones have expired, the later ones not"


@in_simulation
async def test_an_id_that_nobody_uses_leaves_nothing_behind() -> None:
    async with World() as world:
        reply = await world.joined(id_round_trip=True)
        assert reply.error is GroupError.MEMBER_ID_REQUIRED
        assert len(world.groups) == 1
        await runtime.sleep(10.01)
        assert len(world.groups) == 0
        assert world.log.appends == []


@in_simulation
async def test_idle_groups_set_no_timer() -> None:
    async with World() as world:
        for n in range(10):
            await world.commit(("orders", 0, 1), group_id=f"simple-{n}")
        member_id, _ = await world.member()
        world.groups.leave("g", [Identity(member_id)])
        await runtime.sleep(60)
        assert len(world.groups) == 11
        assert len(world.groups._table._timers) == 0


# --- loading


@in_simulation
async def test_while_a_partition_loads_its_members_are_kept_waiting() -> None:
    async with World() as world:
        member_id, generation = await world.member()
        world.log.delay_s = 0
        for n in range(2_000):
            await world.commit(("orders", n % 4, n), group_id=f"simple-{n % 700}")
        rows = dict(world.log.table)
        world.groups.unload(0)
        loading = runtime.spawn(world.groups.load(0, rows, world.log))
        await runtime.sleep(0)
        assert world.groups.heartbeat("g", Identity(member_id), generation) is None
        in_progress = GroupError.LOADING
        assert (await world.joined(member_id)).error is in_progress
        assert (await world.synced(member_id, 1)).error is GroupError.REBALANCE_IN_PROGRESS
        assert await world.commit(("orders", 0, 1)) == [in_progress]
        assert world.groups.list_groups()[0] is in_progress
        assert world.groups.describe("g")[0] is in_progress
        await loading
        assert (await world.synced(member_id, generation)).assignment == b"all"
        assert len(world.groups) == 701


@in_simulation
async def test_a_partition_that_is_lost_while_it_loads_is_not_served() -> None:
    async with World() as world:
        for n in range(1_500):
            await world.commit(("orders", 0, n), group_id=f"simple-{n}")
        rows = dict(world.log.table)
        loading = runtime.spawn(world.groups.load(0, rows, world.log))
        await runtime.sleep(0)
        world.groups.unload(0)
        await loading
        assert len(world.groups) == 0
        assert await world.commit(("orders", 0, 1)) == [GroupError.NOT_COORDINATOR]


@in_simulation
async def test_damage_is_told_and_nothing_is_served() -> None:
    async with World() as world:
        with pytest.raises(DamagedError):
            await world.groups.load(0, {b"\0\1\0\1g\0\1t\0\0\0\0": b"\0\4"}, FakeLog())
        assert await world.commit(("orders", 0, 1)) == [GroupError.NOT_COORDINATOR]


@in_simulation
async def test_groups_are_spread_over_the_partitions() -> None:
    async with World(partitions=4) as world:
        names = [f"group-{n}" for n in range(40)]
        assert {world.groups.partition_of(name) for name in names} == {0, 1, 2, 3}
        world.groups.unload(2)
        for name in names:
            [error] = await world.commit(("orders", 0, 1), group_id=name)
            gone = world.groups.partition_of(name) == 2
            assert error is (GroupError.NOT_COORDINATOR if gone else None)


# --- names and limits


@in_simulation
async def test_a_group_needs_a_name_unless_it_only_keeps_offsets() -> None:
    async with World() as world:
        invalid = GroupError.INVALID_GROUP_ID
        assert (await world.joined(group_id="")).error is invalid
        assert world.groups.heartbeat("", Identity("m"), 1) is invalid
        assert await world.commit(("orders", 0, 1), group_id="") == [None]
        assert await world.fetch(("orders", 0), group_id="") == [1]
        assert (await world.joined(group_id="x" * 40_000)).error is invalid


@in_simulation
async def test_absurd_names_are_refused() -> None:
    async with World() as world:
        for changes in ({"instance_id": "x" * 2_000}, {"protocol_type": "x" * 2_000}):
            assert (await world.joined(**changes)).error is GroupError.NAME_TOO_LONG
        assert len(world.groups) == 0


@in_simulation
@pytest.mark.parametrize("name", [{"instance_id": "x" * 1_024}, {"client_id": "\N{SNOWMAN}" * 249}])
async def test_a_member_id_that_was_assigned_is_accepted(name: dict[str, str]) -> None:
    async with World(initial_rebalance_delay_ms=0) as world:
        first = await world.joined(**name)
        assert first.error is None
        again = await world.joined(first.member_id, **name)
        assert again.error is None


@in_simulation
async def test_what_waits_for_a_store_that_hangs_is_bounded() -> None:
    """A member that changes what it joins with has another record written, time after time."""
    async with World() as world:
        reply = await world.joined()
        world.log.held = True
        for at in range(20):
            large = (("range", bytes([at]) * 4_000_000),)
            reply = await world.joined(reply.member_id, protocols=large)
            waiting = runtime.spawn(world.synced(reply.member_id, reply.generation, own=b"x"))
            await runtime.sleep(0.01)
        assert (await waiting).error is GroupError.UNAVAILABLE
        sizes = [len(value or b"") for rows in world.log.appends for _, value in rows]
        assert 4_000_000 < sum(sizes) < UNDECIDED_BYTES_MAX
        refused = [GroupError.UNAVAILABLE] * 4
        many = [("orders", at % 4, at) for at in range(4)]
        offsets = [runtime.spawn(world.commit(*many, group_id=f"{at}")) for at in range(1_000)]
        await runtime.sleep(0.01)
        assert await offsets[-1] == refused
        await world.log.release()
        assert await world.commit(*many, group_id="again") == [None] * 4
        reply = await world.joined(reply.member_id)
        assert (await world.synced(reply.member_id, reply.generation, own=b"y")).assignment == b"y"
        for each in offsets:
            await each


@in_simulation
async def test_what_members_of_all_groups_bring_is_bounded() -> None:
    large = {"protocols": (("range", bytes(300_000)),)}
    async with World(all_metadata_bytes_max=1024 * 1024) as world:
        members = []
        for group_id in ("a", "b", "c"):
            reply = await world.joined(group_id=group_id, **large)
            await world.synced(reply.member_id, 1, group_id=group_id, own=b"x")
            members.append(reply.member_id)
        too_much = GroupError.GROUP_FULL
        assert (await world.joined(group_id="d", **large)).error is too_much
        assert (await world.joined(group_id="d")).error is None, "small ones still may"
        again = await world.joined(members[0], group_id="a", **large)
        assert again.error is None, "nor is it in the way of those who are there"
        assigned = await world.synced(
            members[0], again.generation, group_id="a", own=bytes(200_000)
        )
        assert assigned.error is GroupError.ASSIGNMENT_TOO_LARGE
        world.groups.leave("b", [Identity(members[1])])
        assert (await world.joined(group_id="e", **large)).error is None


@in_simulation
async def test_what_members_bring_is_counted_after_a_restart() -> None:
    large = {"protocols": (("range", bytes(600_000)),)}
    async with World(all_metadata_bytes_max=1024 * 1024) as world:
        reply = await world.joined(group_id="a", **large)
        await world.synced(reply.member_id, 1, group_id="a", own=b"x")
        await world.restart()
        refused = await world.joined(group_id="b", **large)
        assert refused.error is GroupError.GROUP_FULL
        world.settings = replace(world.settings, all_metadata_bytes_max=1024)
        await world.restart()
        again = await world.joined(reply.member_id, group_id="a", **large)
        assert again.error is None, "who is there stays, whatever the bound is now"
        world.groups.leave("a", [Identity(reply.member_id)])
        refused = await world.joined(group_id="b", **large)
        assert refused.error is GroupError.TOO_MANY_GROUPS


@in_simulation
async def test_groups_are_bounded() -> None:
    async with World(groups_max=2) as world:
        await world.commit(("orders", 0, 1), group_id="a")
        await world.commit(("orders", 0, 1), group_id="b")
        refused = await world.commit(("orders", 0, 1), group_id="c")
        assert refused == [GroupError.TOO_MANY_GROUPS]
        assert (await world.joined(group_id="c")).error is GroupError.TOO_MANY_GROUPS
        assert await world.commit(("orders", 0, 2), group_id="a") == [None]


@in_simulation
async def test_groups_that_were_only_begun_give_way_to_others() -> None:
    """Neither ids that are asked for nor members that never sync keep other groups out."""
    async with World(groups_max=3) as world:
        kept = await world.joined(group_id="kept")
        await world.synced(kept.member_id, kept.generation, group_id="kept")
        for number in range(100):
            asked = await world.joined(group_id=f"id {number}", id_round_trip=True, **HALF_AN_HOUR)
            assert asked.error is GroupError.MEMBER_ID_REQUIRED
        for number in range(10):
            joined = await world.joined(group_id=f"unsynced {number}", **HALF_AN_HOUR)
            assert joined.error is None
        new = await world.joined(group_id="new")
        assert (await world.synced(new.member_id, 1, group_id="new")).error is None
        for name in ("kept", "new"):
            assert world.groups.describe(name)[1].state is GroupState.STABLE
        assert len(world.groups) == 3
        assert not world.complaints


@in_simulation
async def test_groups_that_were_only_begun_have_a_bound_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "TENTATIVE_MAX", 5)
    async with World() as world:
        for number in range(50):
            await world.joined(group_id=f"id {number}", id_round_trip=True)
        assert len(world.groups) == 5


@in_simulation
async def test_a_member_of_a_group_that_gave_way_is_sent_to_begin_again() -> None:
    async with World(groups_max=1) as world:
        waiting = runtime.spawn(world.joined(group_id="a"))
        await runtime.sleep(0.01)
        assert (await world.joined(group_id="b", id_round_trip=True)).member_id
        assert (await waiting).error is GroupError.UNAVAILABLE


@in_simulation
async def test_what_is_refused_is_told_with_the_bound() -> None:
    async with World(groups_max=1, size_max=1) as world:
        first = await world.joined(group_id="a")
        await world.synced(first.member_id, first.generation, group_id="a")
        await world.joined(group_id="b" * 1_000)
        await world.joined(group_id="a")
        (_, bound, text), (_, other_bound, _) = world.complaints
        assert bound == "groups.max"
        assert text == f"refused to join group {'b' * 100!r}: 1 groups are kept (groups.max)"
        assert other_bound.startswith("group.max.size")


@in_simulation
async def test_a_group_that_is_not_there_knows_nobody() -> None:
    async with World() as world:
        unknown = GroupError.UNKNOWN_MEMBER
        assert (await world.joined("m")).error is unknown
        assert (await world.synced("m", 1)).error is unknown
        assert world.groups.heartbeat("g", Identity("m"), 1) is unknown
        assert world.groups.leave("g", [Identity("m")]) == (None, [unknown])
        assert len(world.groups) == 0


# --- looking, deleting


@in_simulation
async def test_groups_are_listed_by_state_and_type() -> None:
    async with World() as world:
        await world.member(group_id="busy")
        await world.commit(("orders", 0, 1), group_id="simple")
        busy = GroupOverview("busy", "consumer", GroupState.STABLE)
        simple = GroupOverview("simple", "", GroupState.EMPTY)
        listed = world.groups.list_groups
        assert listed() == (None, [busy, simple])
        assert listed(["stable"])[1] == [busy]
        assert listed(["EMPTY", "Dead"])[1] == [simple]
        assert listed([], ["Classic"])[1] == [busy, simple]
        assert listed([], ["consumer"])[1] == []


@in_simulation
async def test_only_empty_groups_are_deleted() -> None:
    async with World() as world:
        member_id, _ = await world.member()
        assert await world.groups.delete_group("g") is GroupError.GROUP_NOT_EMPTY
        world.groups.leave("g", [Identity(member_id)])
        await world.commit(("orders", 0, 7))
        assert await world.groups.delete_group("g") is None
        assert await world.groups.delete_group("g") is GroupError.GROUP_NOT_FOUND
        assert await world.fetch(("orders", 0)) == [-1]
        assert world.log.table == {}
        await world.restart()
        assert len(world.groups) == 0


@in_simulation
async def test_a_deletion_is_decided_by_its_record() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 7))
        world.log.held = True
        deleting = runtime.spawn(world.groups.delete_group("g"))
        await runtime.sleep(0.01)
        assert await world.commit(("orders", 0, 8)) == [GroupError.UNAVAILABLE]
        await world.log.release(StoreError("wal/1", "slow down"))
        assert await deleting is GroupError.UNAVAILABLE
        assert await world.fetch(("orders", 0)) == [7]
        assert await world.commit(("orders", 0, 8)) == [None]


@in_simulation
async def test_a_deletion_does_not_wait_for_a_store_that_hangs() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5), ("orders", 1, 5))
        world.log.held = True
        began = runtime.monotonic()
        error, rows = await world.groups.delete_offsets("g", [("orders", 0)])
        late = GroupError.TIMED_OUT
        assert (error, rows) == (None, {("orders", 0): late})
        assert await world.groups.delete_group("g") is late
        assert runtime.monotonic() - began == pytest.approx(10, abs=0.1)
        again = await world.joined()
        assert again.error is GroupError.UNAVAILABLE, "it is not decided yet"
        await world.log.release()
        assert await world.fetch(("orders", 0), ("orders", 1)) == [-1, -1]
        assert (await world.joined()).error is None


@in_simulation
async def test_a_commit_asked_for_right_after_a_deletion_is_not_lost() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 7))
        deleting = runtime.spawn(world.groups.delete_group("g"))
        committing = runtime.spawn(world.commit(("orders", 0, 8)))
        assert await deleting is None
        refused = await committing == [GroupError.UNAVAILABLE]
        assert await world.fetch(("orders", 0)) == [-1 if refused else 8]
        await world.restart()
        assert await world.fetch(("orders", 0)) == [-1 if refused else 8]


@in_simulation
async def test_a_group_that_does_not_exist_is_described_as_dead() -> None:
    async with World() as world:
        error, shown = world.groups.describe("nobody")
        assert (error, shown.state) == (GroupError.GROUP_NOT_FOUND, GroupState.DEAD)
