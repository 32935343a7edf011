"""The cluster log in a bucket: races, lost answers, names, checkpoints, newer clusters, damage."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster import log_view as module
from neve.cluster.log import (
    ClusterLog,
    NoClusterError,
    NoTopicError,
    TopicExistsError,
    check_topic_name,
)
from neve.cluster.log_view import NewerClusterError
from neve.cluster.records import FEATURE_LEVEL, ClusterRecord, Feature, Init, SetConfigs
from neve.cluster.state import ClusterState
from neve.cluster.topic_rules import PARTITIONS_MAX
from neve.errors import (
    ConflictError,
    DamagedError,
    DeniedError,
    FencedError,
    InvalidError,
    StoreFailedError,
    UnavailableError,
    UnsupportedError,
)
from neve.log.envelope import Kind, seal_envelope
from neve.log.keys import cluster_log
from support.scripted_store import ScriptedStore, first, in_simulation, refuse, then

KEYS = cluster_log()


async def cluster(store: ScriptedStore) -> ClusterLog:
    log = ClusterLog(store)
    await log.init()
    return log


async def fresh(store: ScriptedStore) -> ClusterState:
    return await ClusterLog(store).refresh()


async def grow(log: ClusterLog, numbers: int) -> None:
    """So many numbers that each set a config of the topic `t`."""
    topic = log.state.topic("t") or await log.create_topic("t", 1)
    for at in range(numbers):
        await log.propose(lambda _, at=at: SetConfigs(topic.topic_id, {"n": str(at)}))


# --- one cluster


@in_simulation
async def test_an_empty_bucket_is_no_cluster() -> None:
    with pytest.raises(NoClusterError, match="check the URL"):
        await ClusterLog(ScriptedStore()).must_exist()


@in_simulation
async def test_two_processes_that_find_an_empty_bucket_make_one_cluster() -> None:
    store = ScriptedStore()
    logs = [ClusterLog(store) for _ in range(5)]
    states = await runtime.gather(*(log.init() for log in logs))
    assert len({state.cluster_id for state in states}) == 1
    assert store.listed(KEYS.prefix) == [KEYS.number(0)]


# --- registering


@in_simulation
async def test_the_same_node_started_twice_gets_two_incarnations() -> None:
    store = ScriptedStore()
    await cluster(store)
    logs = [ClusterLog(store) for _ in range(3)]
    numbers = await runtime.gather(*(log.register(1, inflight=4) for log in logs))
    assert sorted(numbers) == [1, 2, 3]
    state = await fresh(store)
    assert sorted(state.brokers) == [3]


@pytest.mark.parametrize("error", [UnavailableError, ConflictError])
def test_a_registration_whose_answer_was_lost_is_recognised(error: type[Exception]) -> None:
    async def main() -> None:
        store = ScriptedStore()
        log = await cluster(store)
        store.when("create", KEYS.number(1), refuse(error, after=True))
        assert await log.register(1, inflight=4) == 1
        assert sorted((await fresh(store)).brokers) == [1]

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_registration_that_a_checkpoint_hid_is_recognised_by_its_session() -> None:
    """The answer is lost, and by the time we look the number has been trimmed."""
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)

    async def hide() -> None:
        await other.refresh()
        await grow(other, 2)
        await other._series.checkpoint(other.view)
        await other._series.trim()

    store.when("create", KEYS.number(1), then(hide))
    assert await log.register(1, inflight=4) == 1
    assert sorted((await fresh(store)).brokers) == [1]


# --- topics


@in_simulation
async def test_of_two_that_create_a_topic_one_is_told_that_it_exists() -> None:
    store = ScriptedStore()
    await cluster(store)

    async def create(log: ClusterLog) -> str:
        try:
            return (await log.create_topic("t", 1)).topic_id
        except TopicExistsError:
            return ""

    told = await runtime.gather(*(create(ClusterLog(store)) for _ in range(4)))
    state = await fresh(store)
    assert sorted(told)[:3] == [""] * 3
    assert sorted(state.topics) == [max(told)]


@in_simulation
async def test_a_topic_created_with_a_lost_answer_is_created_once() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    store.when("create", KEYS.number(1), refuse(UnavailableError, after=True))
    topic = await log.create_topic("t", 2)
    assert (await fresh(store)).topics == {topic.topic_id: topic}


@in_simulation
async def test_a_topic_deleted_as_it_is_created_is_told_clearly() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    store.when("create", KEYS.number(1), then(lambda: other.delete_topic("t")))
    with pytest.raises(NoTopicError, match="deleted"):
        await log.create_topic("t", 1)
    assert (await fresh(store)).topics == {}


@in_simulation
async def test_a_topic_created_deleted_and_hidden_by_a_checkpoint_does_not_come_back() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)

    async def hide() -> None:
        await other.delete_topic("t")
        await other._series.checkpoint(other.view)
        await other._series.trim()

    store.when("create", KEYS.number(1), then(hide))
    with pytest.raises(NoTopicError):
        await log.create_topic("t", 1)
    state = await fresh(store)
    assert state.topics == {}
    assert len(state.deleted) == 1


@in_simulation
async def test_deleting_means_the_topic_that_has_the_name_now() -> None:
    """A process that slept through a deletion and a creation deletes the new one, not nothing."""
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    await log.create_topic("t", 1)
    await other.delete_topic("t")
    await other.create_topic("t", 1)
    await log.delete_topic("t")
    assert (await fresh(store)).topics == {}
    with pytest.raises(NoTopicError, match="'t'"):
        await log.delete_topic("t")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "a\n", "x" * 250, "a:b", "a\0"])
def test_a_bad_name_is_refused_clearly(name: str) -> None:
    async def main() -> None:
        store = ScriptedStore()
        log = await cluster(store)
        with pytest.raises(InvalidError, match="cannot be a topic's name") as raised:
            await log.create_topic(name, 1)
        assert repr(name) in str(raised.value)
        assert (await fresh(store)).topics == {}

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("name", ["a", "...", "a.b_c-D9", "x" * 249])
def test_a_good_name_is_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("partitions", [0, -1, PARTITIONS_MAX + 1])
def test_a_bad_number_of_partitions_is_refused(partitions: int) -> None:
    async def main() -> None:
        log = await cluster(ScriptedStore())
        with pytest.raises(InvalidError, match="partitions"):
            await log.create_topic("t", partitions)

    runtime.simulate(main(), seed=1)


# --- leading


@in_simulation
async def test_of_two_that_want_a_partition_one_leads_it() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    both = [await log.register(1, inflight=4), await other.register(2, inflight=4)]
    topic = await log.create_topic("t", 1)
    wanted = [(topic.topic_id, 0)]
    await runtime.gather(log.lead(both[0], wanted), other.lead(both[1], wanted))
    partition = (await fresh(store)).topics[topic.topic_id].partitions[0]
    assert partition.epoch == 0
    assert partition.leader in both


@in_simulation
async def test_leading_what_one_leads_or_what_is_not_there_writes_nothing() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    own = await log.register(1, inflight=4)
    topic = await log.create_topic("t", 1)
    await log.lead(own, [(topic.topic_id, 0)])
    before = store.listed(KEYS.prefix)
    await log.lead(own, [(topic.topic_id, 0), (topic.topic_id, 5), ("f" * 32, 0)])
    await log.tiered([(topic.topic_id, 0, 9), (topic.topic_id, 5, 0), ("f" * 32, 0, 0)])
    assert store.listed(KEYS.prefix) == before


@in_simulation
async def test_registering_again_moves_what_the_earlier_process_led() -> None:
    store = ScriptedStore()
    log, again = await cluster(store), ClusterLog(store)
    topic = await log.create_topic("t", 2)
    old = await log.register(1, inflight=4)
    await log.lead(old, [(topic.topic_id, 0), (topic.topic_id, 1)])
    new = await again.register(1, inflight=4)
    partitions = (await fresh(store)).topics[topic.topic_id].partitions
    assert [(row.leader, row.epoch) for row in partitions] == [(new, 1), (new, 1)]


@in_simulation
async def test_a_process_that_is_over_changes_nothing() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    topic = await log.create_topic("t", 1)
    old = await log.register(1, inflight=4)
    new = await other.register(2, inflight=4)
    assert await other.expire(old)
    before = store.listed(KEYS.prefix)
    for change in (
        log.lead(old, [(topic.topic_id, 0)]),
        log.expire(new),
        log.deregister(old),
        log.set_draining(1, draining=True),
        log.create_topic("u", 1),
        log.add_partitions("t", 2),
        log.producer_ids(old, 10),
        log.tiered([(topic.topic_id, 0, 0)]),
    ):
        with pytest.raises(FencedError, match=f"incarnation {old} is over"):
            await change
    assert store.listed(KEYS.prefix) == before
    assert not await other.expire(old)
    assert store.listed(KEYS.prefix) == before, "it is over already"


# --- a newer cluster


@in_simulation
async def test_a_newer_feature_level_stops_whoever_reads_it() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    await other.refresh()
    with pytest.raises(UnsupportedError, match="upgrade"):
        await log.propose(lambda _: Feature(FEATURE_LEVEL + 1))
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=f"{FEATURE_LEVEL + 1}.*upgrade"):
            await other.refresh()


@in_simulation
async def test_a_process_that_finds_a_newer_level_writes_nothing_more() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    await other.refresh()
    with pytest.raises(UnsupportedError):
        await log.propose(lambda _: Feature(FEATURE_LEVEL + 1))
    before = store.listed(KEYS.prefix)
    with pytest.raises(UnsupportedError, match="upgrade"):
        await other.create_topic("t", 1)
    assert store.listed(KEYS.prefix) == before


@in_simulation
async def test_a_record_of_an_unknown_kind_stops_whoever_reads_it() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    record = {"change": {"type": "tenant", "name": "x"}}
    await store.put(
        KEYS.number(1), seal_envelope(Kind.CLUSTER_RECORD, KEYS.prefix, 1, bytes(16), record)
    )
    stopped: list[Exception] = []
    log.on_newer = stopped.append
    levels = f"feature level {FEATURE_LEVEL} and this version knows levels up to {FEATURE_LEVEL}"
    for _ in range(2):
        with pytest.raises(NewerClusterError, match=f"'tenant'.*{levels}: upgrade"):
            await log.refresh()
    with pytest.raises(NewerClusterError):
        await log.create_topic("t", 1)
    assert len(stopped) == 3


@in_simulation
async def test_an_unknown_kind_behind_a_newer_level_names_both_levels() -> None:
    """The level was raised by a record that the process reads together with the unknown one."""
    store = ScriptedStore()
    log = await cluster(store)
    changes = [{"type": "feature", "level": 7}, {"type": "tenant"}]
    for number, change in enumerate(changes, 1):
        data = seal_envelope(
            Kind.CLUSTER_RECORD, KEYS.prefix, number, bytes(16), {"change": change}
        )
        await store.put(KEYS.number(number), data)
    for each in (log, ClusterLog(store)):
        with pytest.raises(NewerClusterError, match=f"level 7 and .* up to {FEATURE_LEVEL}"):
            await each.refresh()


@in_simulation
async def test_a_field_that_this_version_does_not_know_is_ignored() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    change = {"type": "register", "node_id": 5, "session": "s", "inflight": 4, "at_ms": 0}
    later = {**change, "build": "next", "tenants": [{"name": "x"}]}
    data = seal_envelope(Kind.CLUSTER_RECORD, KEYS.prefix, 1, bytes(16), {"change": later, "by": 1})
    await store.put(KEYS.number(1), data)
    assert (await log.refresh()).brokers[1].node_id == 5
    state = {"cluster_id": "c", "feature_level": FEATURE_LEVEL, "notes": [1, 2]}
    data = seal_envelope(Kind.CLUSTER_CHECKPOINT, KEYS.prefix, 2, bytes(16), state)
    await store.put(KEYS.checkpoint(2), data)
    assert (await fresh(store)).cluster_id == "c"


@in_simulation
async def test_a_change_that_the_cluster_cannot_have_yet_stops_no_process() -> None:
    store = ScriptedStore()
    log = ClusterLog(store)
    await log.propose(lambda _: Init("c", 1, 0))
    stopped: list[Exception] = []
    log.on_newer = stopped.append
    with pytest.raises(UnsupportedError, match="needs feature level 2"):
        await log.set_draining(1, draining=True)
    assert stopped == []


# --- checkpoints


@in_simulation
async def test_a_checkpoint_comes_after_so_many_numbers_and_the_rest_goes() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    await grow(log, module.CHECKPOINT_NUMBERS - 3)
    assert len(store.listed(KEYS.prefix)) == module.CHECKPOINT_NUMBERS - 1
    assert store.listed(KEYS.checkpoints) == []
    await grow(log, 1)
    assert store.listed(KEYS.prefix) == [KEYS.checkpoint(module.CHECKPOINT_NUMBERS)]
    assert await fresh(store) == log.state
    await grow(log, 1)
    state = await fresh(store)
    assert state == log.state
    assert state.topic("t") is not None


@in_simulation
async def test_a_process_that_slept_through_a_checkpoint_goes_on_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 8)
    store = ScriptedStore()
    log, sleeper = await cluster(store), ClusterLog(store)
    await sleeper.refresh()
    await grow(log, 20)
    topic = await sleeper.create_topic("u", 1)
    await log.refresh()
    assert log.state == sleeper.state
    assert topic.topic_id in log.state.topics


@in_simulation
async def test_one_process_writes_a_checkpoint_and_no_other_looks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 8)
    store = ScriptedStore(latency=lambda: runtime.chance().uniform(0.001, 0.05))
    await cluster(store)
    logs = [ClusterLog(store) for _ in range(5)]
    topic = await logs[0].create_topic("t", 1)

    async def change(log: ClusterLog, number: int) -> None:
        for at in range(8):
            value = f"{number}-{at}"
            await log.propose(lambda _, value=value: SetConfigs(topic.topic_id, {"n": value}))  # type: ignore[misc]

    await runtime.gather(*(change(log, number) for number, log in enumerate(logs)))
    written = [
        call.key
        for call in store.calls
        if call.operation == "create" and call.key.startswith(KEYS.checkpoints)
    ]
    assert written == [KEYS.checkpoint(at) for at in (8, 16, 24, 32, 40)]
    assert store.asked("list", KEYS.prefix) == len(written), "to trim"
    for log in logs:
        await log.refresh()
        assert log.state == logs[0].state == await fresh(store)


@pytest.mark.parametrize("failure", [UnavailableError, DeniedError, StoreFailedError])
@in_simulation
async def test_a_checkpoint_that_nobody_wrote_is_made_up_for_by_the_next(
    monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    """The process that won the last number could not write it, and died."""
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 8)
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    store.when("create", KEYS.checkpoint(8), refuse(failure), times=None)
    await grow(log, 6)
    assert store.asked("create", KEYS.checkpoint(8)) == 1
    await other.refresh()
    await grow(other, 8)
    assert store.listed(KEYS.prefix) == [KEYS.checkpoint(16)]
    assert await fresh(store) == other.state


# --- looking


async def looked(log: ClusterLog, store: ScriptedStore) -> tuple[int, int]:
    """How many listings and reads a look takes."""
    before = len(store.calls)
    await log.look()
    asked = [call.operation for call in store.calls[before:]]
    return asked.count("list"), len(asked) - asked.count("list")


@in_simulation
async def test_a_look_that_finds_nothing_lists_nothing() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    await grow(log, 3)
    await log.refresh()
    read_at = log.read_at
    await runtime.sleep(module.WHOLE_READ_SECONDS / 2)
    for _ in range(3):
        assert await looked(log, store) == (0, 2)
    assert log.read_at == read_at, "it proves nothing"
    await runtime.sleep(module.WHOLE_READ_SECONDS / 2)
    assert (await looked(log, store))[0] == 1
    assert log.read_at == runtime.monotonic()


@in_simulation
async def test_a_look_finds_the_next_number() -> None:
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    await log.refresh()
    await grow(other, 3)
    await log.look()
    assert log.state == other.state
    assert log.view.position == other.view.position


@pytest.mark.parametrize("behind", [1, 4, 7])
def test_a_look_notices_that_the_next_number_was_trimmed(
    behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 8)

    async def main() -> None:
        store = ScriptedStore()
        log, other = await cluster(store), ClusterLog(store)
        await grow(log, 14 - behind)
        assert log.view.position == 16 - behind
        for each in (log, other):
            await each.refresh()
        await grow(other, behind)
        assert store.listed(KEYS.prefix) == [KEYS.checkpoint(16)]
        await log.look()
        assert log.state == other.state

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_look_at_what_was_trimmed_long_ago_is_told_or_becomes_a_whole_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 8)
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    told = ClusterLog(store)
    for each in (log, told):
        await each.refresh()
    await grow(other, 26)
    assert store.listed(KEYS.prefix)[-1] == KEYS.checkpoint(24)
    told.seen(other.view.position)
    await told.look()
    assert told.state == other.state
    await log.look()
    assert log.view.position == 1, "nothing shows it yet"
    await runtime.sleep(module.WHOLE_READ_SECONDS)
    await log.look()
    assert log.state == other.state


@in_simulation
async def test_the_series_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 8)
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)
    for _ in range(30):
        await grow(log, 1)
        await other.refresh()
        await grow(other, 1)
        assert len(store.listed(KEYS.prefix)) <= 8 + 3


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_a_change_is_won_whatever_becomes_of_the_checkpoint(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_NUMBERS", 4)

    async def main() -> None:
        store = ScriptedStore()
        log = await cluster(store)
        await log.create_topic("t", 1)
        await grow(log, 1)
        key = KEYS.checkpoint(4) if operation == "create" else KEYS.number(0)
        store.when(operation, key, refuse(UnavailableError))
        assert await log.register(1, inflight=4) == 3
        assert (await fresh(store)) == log.state
        await grow(log, 1)
        assert KEYS.number(0) not in store.listed() or operation == "delete"

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_number_won_below_a_checkpoint_is_not_believed() -> None:
    """Another process checkpoints and trims just before our create lands on a deleted number."""
    store = ScriptedStore()
    log, other = await cluster(store), ClusterLog(store)

    async def pass_by() -> None:
        store.scripts.clear()
        await other.create_topic("t", 1)
        await other._series.checkpoint(other.view)
        await other._series.trim()

    store.when("create", KEYS.number(1), first(pass_by))
    with pytest.raises(TopicExistsError):
        await log.create_topic("t", 1)
    assert len((await fresh(store)).topics) == 1


# --- damage


async def a_small_log(store: ScriptedStore) -> ClusterState:
    log = await cluster(store)
    await log.create_topic("t", 2)
    await log.register(1, inflight=4)
    return log.state


def sync(store: ScriptedStore, key: str, data: bytes) -> str:
    """Read the log with one object replaced; what the reader was told."""
    kept = store.bucket.objects[key]
    store.bucket.objects[key] = (data, 0)
    try:
        return repr(runtime.simulate(fresh(store), seed=1))
    except (DamagedError, UnsupportedError) as error:
        return type(error).__name__ if key in str(error) else f"nobody knows where: {error}"
    finally:
        store.bucket.objects[key] = kept


@pytest.mark.parametrize("checkpointed", [False, True], ids=["number", "checkpoint"])
def test_no_flipped_byte_and_no_cut_gives_a_wrong_state(checkpointed: bool) -> None:
    store = ScriptedStore()

    async def prepare() -> None:
        await a_small_log(store)
        if checkpointed:
            log = ClusterLog(store)
            await log.refresh()
            await log._series.checkpoint(log.view)
            await log._series.trim()

    runtime.simulate(prepare(), seed=1)
    key = KEYS.checkpoint(3) if checkpointed else KEYS.number(1)
    data = store.data(key)
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << (at % 8)
        assert sync(store, key, bytes(flipped)) in ("DamagedError", "UnsupportedError"), at
        assert sync(store, key, data[:at]) == "DamagedError", at
    assert sync(store, key, data + b"\0") == "DamagedError"


@in_simulation
async def test_a_number_found_under_another_key_is_damage() -> None:
    store = ScriptedStore()
    await a_small_log(store)
    await store.put(KEYS.number(2), store.data(KEYS.number(1)))
    with pytest.raises(DamagedError):
        await fresh(store)


@in_simulation
async def test_damage_below_a_checkpoint_hurts_nobody() -> None:
    store = ScriptedStore()
    before = await a_small_log(store)
    log = ClusterLog(store)
    await log.refresh()
    await log._series.checkpoint(log.view)
    await store.put(KEYS.number(1), b"damaged")
    assert await fresh(store) == before


@in_simulation
async def test_the_first_number_says_which_cluster_it_is() -> None:
    store = ScriptedStore()
    log = await cluster(store)
    entry = await log._series.read(0)
    assert entry is not None
    assert isinstance(entry.record, ClusterRecord)
    change = entry.record.change
    assert isinstance(change, Init)
    assert change.cluster_id == log.state.cluster_id
