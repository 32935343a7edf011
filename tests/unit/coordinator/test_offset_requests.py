"""Committing, fetching, deleting and expiring offsets through the coordinator."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import GroupState, Identity
from neve.coordinator.offset_requests import CommitRequest, OffsetToCommit, TopicFacts
from neve.coordinator.offsets import UNCOMMITTED
from neve.errors import FencedError, NeveError, StoreError
from support.group_world import TOPIC, TOPIC_ID, World, leading
from support.scripted_store import in_simulation

DAY_S = 86_400
KEY = ("orders", 0)


# --- committing


@in_simulation
async def test_a_simple_consumer_commits_and_resumes() -> None:
    async with World() as world:
        assert await world.commit(("orders", 0, 5), ("orders", 3, 9)) == [None, None]
        await world.restart()
        answer = await world.groups.fetch_offsets("g", [KEY, ("orders", 1)], leading)
        found = answer.offsets[KEY]
        assert (found.offset, found.leader_epoch, found.metadata) == (5, 3, "m")
        assert (found.topic_id, found.commit_timestamp_ms > 0) == (TOPIC_ID, True)
        assert answer.offsets["orders", 1] == UNCOMMITTED
        assert (UNCOMMITTED.offset, UNCOMMITTED.leader_epoch, UNCOMMITTED.metadata) == (-1, -1, "")


@in_simulation
async def test_a_commit_that_takes_too_long_is_told_and_may_land() -> None:
    async with World(offsets_timeout_ms=2_000) as world:
        world.log.held = True
        began = runtime.monotonic()
        assert await world.commit(("orders", 0, 5)) == [GroupError.TIMED_OUT]
        assert runtime.monotonic() - began == pytest.approx(2, abs=0.1)
        assert await world.fetch(KEY) == [-1], "nobody was told that it is committed"
        await world.log.release()
        assert await world.fetch(KEY) == [5]


@in_simulation
async def test_a_fetch_does_not_wait_for_ever_for_the_store() -> None:
    async def hanging() -> bool:
        await runtime.sleep(60)
        return True

    async with World(offsets_timeout_ms=2_000) as world:
        await world.commit(("orders", 0, 5))
        began = runtime.monotonic()
        answer = await world.groups.fetch_offsets("g", [KEY], hanging)
        assert answer.error is GroupError.TIMED_OUT
        assert runtime.monotonic() - began == pytest.approx(2, abs=0.1)
        assert await world.fetch(KEY) == [5]


@in_simulation
async def test_of_a_partition_that_is_named_twice_the_last_one_counts() -> None:
    async with World() as world:
        assert await world.commit(("orders", 0, 5), ("orders", 0, 6)) == [None, None]
        refused = [GroupError.NEGATIVE_OFFSET] * 2
        assert await world.commit(("orders", 0, 7), ("orders", 0, -3)) == refused
        assert await world.fetch(KEY) == [6]
        assert await world.commit(("orders", 0, -3), ("orders", 0, 7)) == [None, None]
        assert await world.fetch(KEY) == [7]


@in_simulation
async def test_members_commit_within_their_generation() -> None:
    async with World() as world:
        member_id, generation = await world.member()
        me = Identity(member_id)
        assert await world.commit(("orders", 0, 5), identity=me, generation=generation) == [None]
        illegal = GroupError.ILLEGAL_GENERATION
        assert await world.commit(("orders", 0, 6), identity=me, generation=7) == [illegal]
        assert await world.commit(("orders", 0, 6)) == [GroupError.UNKNOWN_MEMBER]
        assert await world.fetch(KEY) == [5]


@in_simulation
async def test_a_generation_of_a_group_that_is_not_there_is_over() -> None:
    async with World() as world:
        refused = await world.commit(("orders", 0, 6), identity=Identity("m"), generation=3)
        assert refused == [GroupError.ILLEGAL_GENERATION]
        assert len(world.groups) == 0


@in_simulation
async def test_each_partition_is_judged_by_itself() -> None:
    async with World(offset_metadata_bytes_max=3) as world:
        rows = [
            OffsetToCommit("orders", 0, 5, 0, "abc"),
            OffsetToCommit("orders", 1, 5, 0, "éé"),
            OffsetToCommit("orders", 4, 5),
            OffsetToCommit("orders", -1, 5),
            OffsetToCommit("nowhere", 0, 5),
            OffsetToCommit("orders", 2, -5),
            OffsetToCommit("orders", 3, 5, 0, None),
        ]
        answers = await world.groups.commit_offsets(CommitRequest(group_id="g", offsets=rows))
        unknown = GroupError.UNKNOWN_PARTITION
        assert list(answers.values()) == [
            None,
            GroupError.METADATA_TOO_LARGE,
            unknown,
            unknown,
            unknown,
            GroupError.NEGATIVE_OFFSET,
            None,
        ]
        assert [len(each) for each in world.log.appends] == [2]


@in_simulation
async def test_a_commit_that_fits_nowhere_leaves_no_group_behind() -> None:
    async with World() as world:
        await world.commit(("nowhere", 0, 5))
        assert len(world.groups) == 0


@in_simulation
async def test_a_commit_is_answered_and_seen_when_its_record_is_committed() -> None:
    async with World() as world:
        world.log.held = True
        committing = runtime.spawn(world.commit(("orders", 0, 5)))
        await runtime.sleep(4)
        assert not committing.done()
        assert await world.fetch(KEY) == [-1]
        await world.log.release()
        assert await committing == [None]
        assert await world.fetch(KEY) == [5]


@in_simulation
async def test_many_commits_may_be_on_their_way_and_the_last_one_counts() -> None:
    async with World() as world:
        world.log.held = True
        commits = [runtime.spawn(world.commit(("orders", 0, n))) for n in range(20)]
        await runtime.sleep(0.01)
        await world.log.release()
        assert [await each for each in commits] == [[None]] * 20
        assert await world.fetch(KEY) == [19]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (FencedError("sealed"), GroupError.NOT_COORDINATOR),
        (StoreError("wal/1", "slow down"), GroupError.UNAVAILABLE),
    ],
)
def test_a_commit_that_fails_is_not_seen(failure: NeveError, error: GroupError | None) -> None:
    async def run() -> None:
        async with World() as world:
            await world.commit(("orders", 0, 5))
            world.log.failure = failure
            assert await world.commit(("orders", 0, 6), ("orders", 9, 1)) == [
                error,
                GroupError.UNKNOWN_PARTITION,
            ]
            assert await world.fetch(KEY) == [5]

    runtime.simulate(run(), seed=1)


@in_simulation
async def test_a_client_that_goes_away_does_not_undo_its_commit() -> None:
    async with World() as world:
        world.log.held = True
        committing = runtime.spawn(world.commit(("orders", 0, 5)))
        await runtime.sleep(0.01)
        committing.cancel()
        await world.log.release()
        assert await world.fetch(KEY) == [5], "the record is in the log, so it is seen"


# --- fetching


@in_simulation
async def test_nothing_is_told_by_a_process_that_may_not_lead_any_more() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))

        async def deposed() -> bool:
            return False

        async def store_is_away() -> bool:
            raise StoreError("wal/1", "no answer")

        async def lost_meanwhile() -> bool:
            world.groups.unload(0)
            return True

        fetch = world.groups.fetch_offsets
        assert (await fetch("g", [KEY], deposed)).error is GroupError.NOT_COORDINATOR
        away = await fetch("g", [KEY], store_is_away)
        assert (away.error, away.offsets) == (GroupError.UNAVAILABLE, {})
        assert (await fetch("g", [KEY], lost_meanwhile)).error is GroupError.NOT_COORDINATOR


@in_simulation
async def test_what_is_committed_while_we_look_is_told() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))

        async def slow_look() -> bool:
            await world.commit(("orders", 0, 6))
            return True

        answer = await world.groups.fetch_offsets("g", [KEY], slow_look)
        assert answer.offsets[KEY].offset == 6


@in_simulation
async def test_all_offsets_of_a_group() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5), ("orders", 3, 9))
        answer = await world.groups.fetch_offsets("g", None, leading)
        assert {key: value.offset for key, value in answer.offsets.items()} == {
            ("orders", 0): 5,
            ("orders", 3): 9,
        }
        nobody = await world.groups.fetch_offsets("nobody", None, leading)
        assert (nobody.error, nobody.offsets) == (None, {})


# --- topics that are deleted and created again


@in_simulation
async def test_a_topic_created_again_starts_without_offsets() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5), ("orders", 1, 6))
        world.topics.known = {"orders": TopicFacts(b"n" * 16, 4)}
        assert await world.fetch(KEY) == [-1]
        everything = await world.groups.fetch_offsets("g", None, leading)
        assert everything.offsets == {}
        await runtime.sleep(1)
        assert world.log.table == {}, "what is certain to be gone is dropped"


@in_simulation
async def test_a_topic_that_we_have_not_heard_of_yet_keeps_its_offsets() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        world.topics.actual, world.topics.known = world.topics.known, {}
        assert await world.fetch(KEY) == [5]
        assert world.topics.refreshes == 1


@in_simulation
async def test_what_cannot_be_made_sure_of_is_not_answered() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        world.topics.known = {}
        world.topics.failure = StoreError("meta/log", "slow down")
        answer = await world.groups.fetch_offsets("g", [KEY], leading)
        assert answer.error is GroupError.UNAVAILABLE


@in_simulation
async def test_dropping_an_old_offset_spares_a_new_one_on_its_way() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        world.topics.known = {"orders": TopicFacts(b"n" * 16, 4)}
        world.log.held = True
        committing = runtime.spawn(world.commit(("orders", 0, 1)))
        await runtime.sleep(0.01)
        assert await world.fetch(KEY) == [-1]
        await world.groups.expire()
        await world.log.release()
        assert await committing == [None]
        assert await world.fetch(KEY) == [1]
        await world.restart()
        assert await world.fetch(KEY) == [1]


# --- deleting


@in_simulation
async def test_offsets_are_deleted_one_by_one() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5), ("orders", 1, 6))
        error, answers = await world.groups.delete_offsets("g", [KEY, ("nowhere", 0)])
        assert (error, answers) == (None, {KEY: None, ("nowhere", 0): None})
        assert await world.fetch(KEY, ("orders", 1)) == [-1, 6]
        assert (await world.groups.delete_offsets("nobody", [KEY]))[0] is (
            GroupError.GROUP_NOT_FOUND
        )


@in_simulation
async def test_a_group_stays_when_its_last_offset_is_deleted() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        assert await world.groups.delete_offsets("g", [KEY]) == (None, {KEY: None})
        assert [each.group_id for each in world.groups.list_groups()[1]] == ["g"]
        assert await world.groups.delete_offsets("g", [KEY]) == (None, {KEY: None})
        assert await world.groups.delete_group("g") is None
        assert await world.groups.delete_group("g") is GroupError.GROUP_NOT_FOUND


@in_simulation
async def test_an_empty_group_without_offsets_expires() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        await world.groups.delete_offsets("g", [KEY])
        await world.groups.expire()
        assert len(world.groups) == 0


@in_simulation
async def test_what_members_read_is_not_deleted() -> None:
    async with World() as world:
        world.topics.known["payments"] = TopicFacts(b"p" * 16, 1)
        member_id, generation = await world.member()
        me = Identity(member_id)
        rows = [("orders", 0, 5), ("payments", 0, 6)]
        await world.commit(*rows, identity=me, generation=generation)
        _, answers = await world.groups.delete_offsets("g", [KEY, ("payments", 0)])
        assert answers == {KEY: GroupError.SUBSCRIBED_TO_TOPIC, ("payments", 0): None}
        assert await world.fetch(KEY, ("payments", 0)) == [5, -1]


@in_simulation
async def test_of_a_group_of_another_kind_nothing_is_deleted() -> None:
    async with World() as world:
        reply = await world.joined(protocol_type="connect")
        await world.synced(reply.member_id, 1, own=b"x")
        error, answers = await world.groups.delete_offsets("g", [KEY])
        assert (error, answers) == (GroupError.GROUP_NOT_EMPTY, {})


# --- growing old


@in_simulation
async def test_offsets_of_simple_consumers_expire_after_their_commit() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        await runtime.sleep(4 * DAY_S)
        await world.commit(("orders", 1, 6))
        await runtime.sleep(3 * DAY_S + 700)
        assert await world.fetch(KEY, ("orders", 1)) == [-1, 6]
        await runtime.sleep(4 * DAY_S)
        assert len(world.groups) == 0
        assert world.log.table == {}


@in_simulation
async def test_offsets_of_a_group_last_while_it_has_members_and_a_while_after() -> None:
    async with World() as world:
        reply = await world.joined(session_timeout_ms=1_800_000)
        await world.synced(reply.member_id, 1, own=b"x")
        me = Identity(reply.member_id)
        await world.commit(("orders", 0, 5), identity=me, generation=1)
        for _ in range(8 * DAY_S // 1_500):
            await runtime.sleep(1_500)
            assert world.groups.heartbeat("g", me, 1) is None
        assert await world.fetch(KEY) == [5]
        await runtime.sleep(1_801)
        assert world.groups.describe("g")[1].state is GroupState.EMPTY
        await runtime.sleep(6 * DAY_S)
        assert await world.fetch(KEY) == [5]
        await world.restart()
        await runtime.sleep(1 * DAY_S + 1_800)
        assert await world.fetch(KEY) == [-1], "since it became empty, a restart between or not"
        assert len(world.groups) == 0
        assert world.log.table == {}


@in_simulation
async def test_an_active_group_keeps_what_it_reads_and_loses_what_it_no_longer_does() -> None:
    async with World(
        offsets_retention_ms=60_000,
        offsets_check_interval_ms=10_000,
        max_session_timeout_ms=600_000,
    ) as world:
        world.topics.known["payments"] = TopicFacts(b"p" * 16, 1)
        reply = await world.joined(session_timeout_ms=600_000)
        await world.synced(reply.member_id, 1, own=b"x")
        me = Identity(reply.member_id)
        await world.commit(("orders", 0, 5), ("payments", 0, 6), identity=me, generation=1)
        await runtime.sleep(90)
        assert await world.fetch(KEY, ("payments", 0)) == [5, -1]


@in_simulation
async def test_an_expiry_that_fails_is_made_up_for() -> None:
    async with World() as world:
        await world.commit(("orders", 0, 5))
        world.log.failure = StoreError("wal/1", "slow down")
        await runtime.sleep(8 * DAY_S)
        assert await world.fetch(KEY) == [5]
        world.log.failure = None
        await runtime.sleep(601)
        assert len(world.groups) == 0


@in_simulation
async def test_an_expiry_leaves_a_group_alone_that_took_the_name_of_a_dropped_one() -> None:
    async with World(initial_rebalance_delay_ms=0) as world:
        for at in range(400):  # the run yields after each group
            await world.commit(("orders", 0, 1), group_id=f"other{at}")
        first = await world.joined(id_round_trip=True)
        run = asyncio.ensure_future(world.groups.expire())
        await runtime.sleep(0)
        world.groups.leave("g", [Identity(first.member_id)])
        member_id, generation = await world.member()
        await run
        await world.restart()
        assert world.groups.heartbeat("g", Identity(member_id), generation) is None


@in_simulation
async def test_offsets_of_deleted_topics_go_with_the_next_look() -> None:
    async with World() as world:
        world.topics.known["payments"] = TopicFacts(b"p" * 16, 1)
        await world.commit(("orders", 0, 5), ("payments", 0, 6))
        del world.topics.known["payments"]
        await runtime.sleep(601)
        assert [group.offsets for group in world.groups.summaries()] == [{KEY[0]: {KEY[1]: 5}}]
        assert len(world.log.table) == 1


@in_simulation
async def test_offsets_of_all_groups_are_bounded_in_bytes_across_a_restart() -> None:
    async with World(offsets_memory_bytes=64 * 1024, offset_metadata_bytes_max=4_096) as world:

        async def commit(group_id: str, metadata: str) -> GroupError | None:
            offset = OffsetToCommit(TOPIC, 0, 7, metadata=metadata)
            request = CommitRequest(group_id=group_id, offsets=[offset])
            return (await world.groups.commit_offsets(request))[TOPIC, 0]

        answers = [await commit(f"g{number}", "x" * 4_000) for number in range(12)]
        kept = answers.index(GroupError.OFFSETS_FULL)
        assert 5 < kept < 10
        assert set(answers[kept:]) == {GroupError.OFFSETS_FULL}
        assert len(world.groups) == kept, "a group that was refused its only offset is forgotten"
        await world.restart()
        assert await commit("another", "x" * 4_000) == GroupError.OFFSETS_FULL
        assert await commit("g0", "y" * 4_000) is None
        assert await world.groups.delete_group("g1") is None
        assert await commit("another", "x" * 4_000) is None
