"""Deleted topics and other processes: none of them may still write when a topic is forgotten."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec

from neve import runtime
from neve.cluster.node import Node
from neve.cluster.state import BrokerRegistration
from neve.log.keys import topic_prefix
from neve.settings import ClusterSettings
from support.node_world import TOPIC, batch_of, small_settings
from support.scripted_store import ScriptedStore, hold, in_simulation

DELAY_SECONDS = 100
SETTINGS = dataclasses.replace(
    small_settings(segment_bytes=200, checkpoint_numbers=2),
    cluster=ClusterSettings(purge_delay_ms=DELAY_SECONDS * 1000),
)


class Brokers:
    """Nodes that other nodes can ask what they have dropped."""

    def __init__(self, store: ScriptedStore) -> None:
        self.store = store
        self.asked: list[int] = []
        self.silent: set[int] = set()  # incarnations that answer nothing
        self._nodes: dict[int, Node] = {}

    async def start(self, node_id: int, *, port: int = 9092) -> Node:
        node = await Node.start(self.store, SETTINGS, node_id=node_id, host="h", port=port)
        await node.takeover.lead()
        self._nodes[node.incarnation] = node
        node.purging.ask = self._ask
        return node

    async def _ask(self, target: BrokerRegistration) -> int | None:
        self.asked.append(target.incarnation)
        await runtime.sleep(0.01)
        node = self._nodes[target.incarnation]
        if target.incarnation in self.silent or node.ended is not None:
            return None
        return node.purging.dropped_below()

    async def with_topic(self, leader: Node) -> str:
        """Create a topic that one node leads, with a record. Returns its prefix."""
        topic = await leader.topics.create(TOPIC, 1, preferred={0: (leader.node_id,)})
        await leader.leader(TOPIC, 0).append(batch_of(["committed"])).commit.wait()
        return topic_prefix(TOPIC, topic.id_bytes)

    async def refresh(self) -> None:
        for node in self._nodes.values():
            if node.ended is None:
                await node.cluster.refresh()

    async def purged(self, *nodes: Node) -> bool:
        """Rounds of these nodes. Returns whether the cluster has forgotten every deleted topic."""
        for _ in range(6):
            for node in nodes:
                await node.cluster.refresh()
                await node.purging.purge()
            await runtime.sleep(DELAY_SECONDS / 2)
        return not (await nodes[0].cluster.refresh()).deleted

    async def abort(self) -> None:
        for node in self._nodes.values():
            await node.abort()


@in_simulation
async def test_it_is_not_forgotten_before_every_live_process_has_dropped_it() -> None:
    """A leader that is slow, but alive, may still tier what it had committed."""
    brokers = Brokers(ScriptedStore())
    janitor, slow = await brokers.start(1), await brokers.start(2)
    prefix = await brokers.with_topic(slow)
    await brokers.refresh()
    release, reached = asyncio.Event(), asyncio.Event()
    brokers.store.when("create", lambda key: key.endswith(".kfs"), hold(release, reached))
    tiering = runtime.spawn(slow.leader(TOPIC, 0).tier())
    await reached.wait()
    await janitor.topics.delete(TOPIC)
    deleted_at = janitor.cluster.view.position - 1
    await brokers.refresh()
    assert slow.purging.dropped_below() == deleted_at, "its upload is not over"
    # Longer than the delay, but shorter than what a run may take.
    for _ in range(4):
        await janitor.purging.purge()
        await runtime.sleep(DELAY_SECONDS / 10)
    assert brokers.store.listed(prefix) == []
    release.set()
    await tiering
    assert brokers.store.listed(prefix) != [], "the late upload has landed"
    assert slow.purging.dropped_below() == deleted_at + 1
    assert await brokers.purged(janitor, slow)
    assert brokers.store.listed(prefix) == []
    await brokers.abort()


@in_simulation
async def test_a_process_that_has_not_read_of_the_deletion_is_waited_for() -> None:
    brokers = Brokers(ScriptedStore())
    janitor, slow = await brokers.start(1), await brokers.start(2)
    await brokers.with_topic(slow)
    await janitor.cluster.refresh()
    await janitor.topics.delete(TOPIC)
    assert not await brokers.purged(janitor), "the other one still leads it, and may tier it"
    await brokers.refresh()
    assert await brokers.purged(janitor)
    await brokers.abort()


@in_simulation
async def test_brokers_need_no_record_and_are_asked_once_for_all_topics() -> None:
    brokers = Brokers(ScriptedStore())
    janitor = await brokers.start(1)
    others = [await brokers.start(node_id) for node_id in (2, 3, 4)]
    for name in "abc":
        await janitor.topics.create(name, 4)
    await brokers.refresh()
    for name in "abc":
        await janitor.topics.delete(name)
    before = janitor.cluster.view.position
    await brokers.refresh()
    calls = len(brokers.store.calls)
    for node in others:
        assert not node.purging.due()
        assert await node.purging.purge() == 0
    assert len(brokers.store.calls) == calls, "they request nothing of the store"
    assert await brokers.purged(janitor)
    assert sorted(brokers.asked) == [node.incarnation for node in others]
    assert janitor.cluster.view.position == before + 3, "one record each, that it is purged"
    await brokers.abort()


@in_simulation
async def test_waiting_for_a_process_requests_nothing_of_the_store() -> None:
    brokers = Brokers(ScriptedStore())
    janitor, slow = await brokers.start(1), await brokers.start(2)
    await brokers.with_topic(slow)
    await janitor.topics.delete(TOPIC)
    await janitor.purging.purge()
    calls = len(brokers.store.calls)
    for _ in range(5):
        assert janitor.purging.due()
        assert await janitor.purging.purge() == 0
    assert len(brokers.store.calls) == calls
    await brokers.abort()


@in_simulation
async def test_a_process_that_answers_nothing_is_waited_for_until_it_has_ended() -> None:
    brokers = Brokers(ScriptedStore())
    janitor, lost = await brokers.start(1), await brokers.start(2)
    prefix = await brokers.with_topic(lost)
    await brokers.refresh()
    await janitor.topics.delete(TOPIC)
    await brokers.refresh()
    brokers.silent.add(lost.incarnation)
    assert not await brokers.purged(janitor)
    assert await janitor.cluster.expire(lost.incarnation)
    assert await brokers.purged(janitor)
    assert brokers.store.listed(prefix) == []
    await brokers.abort()


@in_simulation
async def test_what_an_earlier_process_of_a_node_has_said_does_not_count_for_the_next() -> None:
    """The next process of the node leads a topic that is deleted later."""
    brokers = Brokers(ScriptedStore())
    janitor, first = await brokers.start(1), await brokers.start(2)
    await janitor.topics.create("earlier", 1)
    await brokers.refresh()
    await janitor.topics.delete("earlier")
    await brokers.refresh()
    janitor.purging.heard(first.incarnation, 10**9)
    await first.abort()
    second = await brokers.start(2)
    brokers.silent.add(second.incarnation)
    await brokers.with_topic(second)
    await janitor.cluster.refresh()
    await janitor.topics.delete(TOPIC)
    assert not await brokers.purged(janitor)
    brokers.silent.clear()
    await brokers.refresh()
    assert await brokers.purged(janitor)
    await brokers.abort()


@in_simulation
async def test_what_was_said_before_a_deletion_does_not_cover_it() -> None:
    brokers = Brokers(ScriptedStore())
    janitor, slow = await brokers.start(1), await brokers.start(2)
    await brokers.with_topic(slow)
    await brokers.refresh()
    janitor.purging.heard(slow.incarnation, slow.purging.dropped_below())
    await janitor.topics.delete(TOPIC)
    brokers.silent.add(slow.incarnation)
    assert not await brokers.purged(janitor)
    await brokers.abort()


@in_simulation
async def test_what_a_process_says_only_grows() -> None:
    brokers = Brokers(ScriptedStore())
    node, other = await brokers.start(1), await brokers.start(2)
    said = [node.purging.dropped_below()]
    release = asyncio.Event()
    for round_number in range(4):
        await brokers.with_topic(node)
        said.append(node.purging.dropped_below())
        if round_number == 2:
            brokers.store.when("create", lambda key: key.endswith(".kfs"), hold(release))
            tiering = runtime.spawn(node.leader(TOPIC, 0).tier())
            await runtime.sleep(0.1)
        await other.cluster.refresh()
        await other.topics.delete(TOPIC)
        await node.cluster.refresh()
        said.append(node.purging.dropped_below())
    assert said[-1] < node.cluster.view.position
    release.set()
    await tiering
    said.append(node.purging.dropped_below())
    assert said == sorted(said)
    assert said[-1] == node.cluster.view.position
    await brokers.abort()


@in_simulation
async def test_the_next_janitor_starts_over() -> None:
    brokers = Brokers(ScriptedStore())
    janitor, heir, leader = [await brokers.start(node_id) for node_id in (1, 2, 3)]
    prefix = await brokers.with_topic(leader)
    await brokers.refresh()
    await leader.leader(TOPIC, 0).tier()
    await janitor.topics.delete(TOPIC)
    await brokers.refresh()
    await janitor.purging.purge()
    await runtime.sleep(DELAY_SECONDS / 2)
    assert not heir.purging.due()
    await janitor.abort()
    assert await heir.cluster.expire(janitor.incarnation)
    assert heir.purging.due()
    started = runtime.monotonic()
    while (await heir.cluster.refresh()).deleted:
        await heir.purging.purge()
        await runtime.sleep(1)
    assert runtime.monotonic() - started >= DELAY_SECONDS, "on its own clock"
    assert brokers.store.listed(prefix) == []
    await brokers.abort()


@in_simulation
async def test_two_janitors_at_once_do_no_harm() -> None:
    """One has been declared dead and does not know it yet."""
    brokers = Brokers(ScriptedStore())
    old, new, leader = [await brokers.start(node_id) for node_id in (1, 2, 3)]
    prefix = await brokers.with_topic(leader)
    await brokers.refresh()
    await leader.leader(TOPIC, 0).tier()
    release, reached = asyncio.Event(), asyncio.Event()
    await leader.leader(TOPIC, 0).append(batch_of(["late"])).commit.wait()
    brokers.store.when("create", lambda key: key.endswith(".kfs"), hold(release, reached))
    tiering = runtime.spawn(leader.leader(TOPIC, 0).tier())
    await reached.wait()
    await old.topics.delete(TOPIC)
    await brokers.refresh()
    await new.cluster.expire(old.incarnation)
    await old.purging._sweep(next(iter(old.cluster.state.deleted.values())))
    for _ in range(3):
        await new.purging.purge()
        await runtime.sleep(DELAY_SECONDS / 10)
    assert new.cluster.state.deleted, "the leader's upload is not over"
    release.set()
    await tiering
    old_rounds = runtime.spawn(brokers.purged(old))
    assert await brokers.purged(new)
    await old_rounds
    assert brokers.store.listed(prefix) == []
    await brokers.abort()


@in_simulation
async def test_a_process_without_an_address_records_what_it_has_dropped() -> None:
    brokers = Brokers(ScriptedStore())
    janitor, job = await brokers.start(1), await brokers.start(2, port=0)
    await brokers.with_topic(job)
    await brokers.refresh()
    await janitor.topics.delete(TOPIC)
    await brokers.refresh()
    assert not await brokers.purged(janitor), "it cannot be asked"
    assert brokers.asked == []
    assert await brokers.purged(janitor, job)
    await brokers.abort()


@in_simulation
async def test_a_topic_that_was_deleted_below_level_two_needs_a_record_of_each() -> None:
    """It has no number, and what a process says would cover it before it has read of it."""
    brokers = Brokers(ScriptedStore())
    janitor, other = await brokers.start(1), await brokers.start(2)
    await brokers.with_topic(other)
    await brokers.refresh()
    await janitor.topics.delete(TOPIC)
    for node in (janitor, other):
        await node.cluster.refresh()
        view = node.cluster.view
        deleted = {
            key: msgspec.structs.replace(topic, deleted_at=0)
            for key, topic in view.state.deleted.items()
        }
        state = msgspec.structs.replace(view.state, deleted=deleted)
        node.cluster.view = type(view)(view.position, state)
    assert other.purging.dropped_below() == other.cluster.view.position
    janitor.purging.heard(other.incarnation, 10**9)
    assert not janitor.purging._is_quiet(next(iter(janitor.cluster.state.deleted.values())))
    assert other.purging.due()
    await brokers.abort()
