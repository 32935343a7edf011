"""Groups as kafka_exporter shows them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from neve.broker.metrics.group_view import group_view
from neve.coordinator.group_messages import GroupState
from neve.coordinator.groups import GroupSummary

ENDS = {"t": [100, 50, None], "u": [7]}


def samples(groups: list[GroupSummary]) -> dict[str, dict[tuple[str, ...], float]]:
    exposed = "".join(group_view(groups, lambda topic: ENDS.get(topic, [])))
    return {
        family.name: {tuple(sorted(row.labels.values())): row.value for row in family.samples}
        for family in text_string_to_metric_families(exposed)
    }


def test_offsets_and_lags_of_every_partition_of_a_topic_that_a_group_reads() -> None:
    found = samples([GroupSummary("g", GroupState.STABLE, 2, {"t": {0: 90, 2: 5}})])
    assert found["kafka_consumergroup_members"] == {("g",): 2}
    assert found["kafka_consumergroup_current_offset"] == {
        ("0", "g", "t"): 90,
        ("1", "g", "t"): -1,
        ("2", "g", "t"): 5,
    }
    assert found["kafka_consumergroup_lag"] == {("0", "g", "t"): 10, ("1", "g", "t"): -1}
    assert found["kafka_consumergroup_current_offset_sum"] == {("g", "t"): 95}
    assert found["kafka_consumergroup_lag_sum"] == {("g", "t"): 10}


def test_groups_count_by_state_and_a_state_without_any_is_0() -> None:
    groups = [GroupSummary(name, GroupState.EMPTY, 0, {}) for name in ("a", "b")]
    expected = {(state.value,): 0 for state in GroupState} | {("Empty",): 2}
    assert samples(groups)["neve_groups"] == expected


def test_a_commit_beyond_the_end_is_no_negative_lag() -> None:
    found = samples([GroupSummary("g", GroupState.EMPTY, 0, {"u": {0: 9}})])
    assert found["kafka_consumergroup_lag"] == {("0", "g", "u"): 0}


def test_a_topic_that_is_gone_is_not_shown() -> None:
    found = samples([GroupSummary("g", GroupState.EMPTY, 0, {"gone": {0: 9}})])
    assert found["kafka_consumergroup_current_offset"] == {}
    assert found["kafka_consumergroup_lag_sum"] == {}
