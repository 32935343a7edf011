"""`neve bench scale`: what the simulated half measures, and that what it measures stays cheap."""

from __future__ import annotations

from typing import Any

import pytest

from neve import runtime
from neve.bench.kafka.measure import BenchError
from neve.bench.scale import measure, processor, simulated, throughput
from neve.bench.scale.cluster import SimulatedCluster, Size, initial_state, wait_until
from neve.bench.scale.shared_series import SharedSeries
from neve.cluster import membership, takeover
from neve.cluster import rebalancer as rebalancing
from neve.cluster.balance import target_leaders
from neve.cluster.fold import ClusterRules
from neve.cluster.log import ClusterLog
from neve.settings import ClusterSettings
from neve.store.memory import MemoryStore

SMALL = Size(brokers=4, partitions=60)
MEDIUM = Size(brokers=10, partitions=2_000)
IDLE_SECONDS = 120.0
SESSION_SECONDS = ClusterSettings().session_ms / 1000
DELAY_SECONDS = ClusterSettings().rebalance_delay_ms / 1000


@pytest.fixture(scope="module")
def medium() -> simulated.Figures:
    steps: list[str] = []
    found = simulated.measure_changes(MEDIUM, IDLE_SECONDS, seed=1, step=steps.append)
    assert tuple(steps) == simulated.STEPS
    return found


def test_a_killed_broker_is_replaced_before_a_silent_one(medium: simulated.Figures) -> None:
    assert 0 < medium["failover.killed"] < SESSION_SECONDS / 2
    assert SESSION_SECONDS <= medium["failover.silent"] < SESSION_SECONDS + 5
    for name in ("killed", "silent"):
        assert medium[f"failover.{name}.balanced"] > DELAY_SECONDS


def test_requests_to_release_share_records(medium: simulated.Figures) -> None:
    """All others ask the two successors of a dead broker at the same time."""
    assert medium["failover.killed.records"] < MEDIUM.brokers


def test_a_new_broker_asks_the_next_owners_at_once(medium: simulated.Figures) -> None:
    rounds = MEDIUM.brokers // rebalancing.OWNERS_AT_ONCE
    waits = rounds * membership.REBALANCE_CHECK_SECONDS
    assert DELAY_SECONDS < medium["join.seconds"] < DELAY_SECONDS + waits
    assert medium["join.records"] >= MEDIUM.brokers - 2  # two have died, one has joined


def test_changes_wait_for_the_store_only(medium: simulated.Figures) -> None:
    assert 5 < medium["log.changes"] < 1 / 0.020


def test_an_idle_cluster_costs_less_than_promised() -> None:
    size = Size(brokers=measure.SMALL_BROKERS, partitions=measure.SMALL_PARTITIONS)
    found = simulated.measure_idle(size, IDLE_SECONDS, seed=1)
    (bound,) = [each for each in measure.BOUNDS if each.name == "idle3.dollars"]
    assert bound.at_most is not None
    assert 0 < found["idle.dollars"] < bound.at_most
    assert found == simulated.measure_idle(size, IDLE_SECONDS, seed=1)


def in_cluster(scenario: Any, size: Size = SMALL) -> Any:
    """Run a scenario with a cluster that has settled."""

    async def run() -> Any:
        cluster = SimulatedCluster(size)
        await cluster.start()
        await runtime.sleep(DELAY_SECONDS + 5)
        try:
            return await scenario(cluster)
        finally:
            await cluster.close()

    return runtime.simulate(run(), seed=1)


def test_a_cluster_begins_balanced() -> None:
    state = initial_state(SMALL)
    leaders = {
        (topic_id, number): row.leader
        for topic_id, topic in state.topics.items()
        for number, row in enumerate(topic.partitions)
    }
    assert target_leaders(state) == leaders

    async def scenario(cluster: SimulatedCluster) -> None:
        assert cluster.is_balanced()
        assert await cluster.position() == SMALL.brokers + 1, "nothing was moved"

    in_cluster(scenario)


def test_shared_states_are_those_that_a_broker_folds_by_itself() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await cluster.kill(1)
        await wait_until("the load is balanced", cluster.is_balanced)
        await runtime.sleep(10)
        own = await ClusterLog(MemoryStore(cluster.bucket)).refresh()
        first, *others = [await each.node.cluster.refresh() for each in cluster.brokers.values()]
        assert first == own
        assert all(each is first for each in others)

    in_cluster(scenario)


# --- what a change of the cluster log may cost


def test_an_unrelated_change_computes_no_target_and_no_watchers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def counted(where: Any, name: str) -> None:
        inner = getattr(where, name)

        def call(*given: Any, **more: Any) -> Any:
            calls.append(name)
            return inner(*given, **more)

        monkeypatch.setattr(where, name, call)

    async def scenario(cluster: SimulatedCluster) -> None:
        for where, name in ((rebalancing, "target_leaders"), (membership, "watched_by")):
            counted(where, name)
        before = await cluster.position()
        await cluster.brokers[1].node.cluster.producer_ids(1, 1)
        await runtime.sleep(10)
        assert all(each.membership.position > before for each in cluster.brokers.values())
        assert calls == []
        await cluster.kill(2)
        await runtime.sleep(30)
        assert set(calls) == {"target_leaders", "watched_by"}
        # All brokers share the states here, and so what is computed from them.
        assert calls.count("target_leaders") <= await cluster.position() - before

    in_cluster(scenario)


def test_only_topics_that_have_changed_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    inner = takeover.partitions_to_lead

    def noted(state: Any, own: int, served: Any, topics: Any = None) -> Any:
        searched.extend(state.topics if topics is None else [row.name for row in topics])
        return inner(state, own, served, topics)

    async def scenario(cluster: SimulatedCluster) -> None:
        monkeypatch.setattr(takeover, "partitions_to_lead", noted)
        node = cluster.brokers[1].node
        await node.cluster.set_configs("topic-1", {"retention.ms": "1000"})
        await runtime.sleep(10)
        assert set(searched) == {"topic-1"}

    in_cluster(scenario)


def test_the_streams_of_a_topic_are_collected_once() -> None:
    state = initial_state(SMALL)
    assert state.streams() == sorted(state.brokers)
    for topic in state.topics.values():
        assert topic.streams is topic.streams


# --- the plan and the rest


@pytest.mark.parametrize(
    "given", [{"brokers": 1}, {"partitions": 3}, {"seconds": 0}, {"idle_seconds": 0}]
)
def test_what_cannot_be_measured_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BenchError, match=r"at least 2 brokers|greater than 0"):
        measure.Plan(**given)


def test_processor_time_is_that_of_one_broker_that_shares_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folds = []
    fold = ClusterRules.fold

    def counted(self: ClusterRules, state: Any, number: int, record: Any) -> Any:
        folds.append(number)
        return fold(self, state, number, record)

    monkeypatch.setattr(ClusterRules, "fold", counted)
    monkeypatch.delattr(SharedSeries, "_folded")
    found = processor.measure(SMALL)
    assert set(found) == {"cpu.checkpoint", "cpu.change"}
    assert found["cpu.change"] > 0
    # The proposal is folded before it is written and when it is read, by each of the two.
    assert folds.count(SMALL.brokers + 1) == 3


def test_every_figure_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def taken(count: int, seconds: float) -> throughput.Figures:
        assert seconds == 1.0
        asked.append(count)
        return {f"throughput.{count}": 1.0, f"puts.{count}": 1.0}

    monkeypatch.setattr(throughput, "measure", taken)
    steps: list[tuple[int, int | None]] = []
    plan = measure.Plan(brokers=4, partitions=60, seconds=1.0, idle_seconds=IDLE_SECONDS)
    result = measure.run(plan, on_progress=lambda done, total: steps.append((done, total)))
    assert asked == [1, 2, 3]
    assert steps == [(done, plan.steps) for done in range(plan.steps)]
    rows = {row["name"]: row for row in result["rows"]}
    assert list(rows) == [bound.name for bound in measure.BOUNDS]
    assert result["passed"] is True
    monkeypatch.setattr(
        simulated, "measure_idle", lambda *_, **__: {"idle.dollars": 5.1, "idle.requests": 1.0}
    )
    assert measure.run(plan)["passed"] is False
