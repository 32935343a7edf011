"""Groups as kafka_exporter shows them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from neve.broker.metrics.group_view import GroupRow, group_view

ENDS = {"t": [100, 50, None], "u": [7]}
STATES = ("Empty", "Stable", "Dead")


def samples(groups: list[GroupRow]) -> dict[str, dict[tuple[str, ...], float]]:
    exposed = "".join(group_view(groups, STATES, lambda topic: ENDS.get(topic, [])))
    return {
        family.name: {tuple(sorted(row.labels.values())): row.value for row in family.samples}
        for family in text_string_to_metric_families(exposed)
    }


def test_offsets_and_lags_of_every_partition_of_a_topic_that_a_group_reads() -> None:
    found = samples([GroupRow("g", "Stable", 2, {"t": {0: 90, 2: 5}})])
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
    groups = [GroupRow(name, state, 0, {}) for name, state in (("a", "Empty"), ("b", "Empty"))]
    assert samples(groups)["neve_groups"] == {("Empty",): 2, ("Stable",): 0, ("Dead",): 0}


def test_a_commit_beyond_the_end_is_no_negative_lag() -> None:
    found = samples([GroupRow("g", "Empty", 0, {"u": {0: 9}})])
    assert found["kafka_consumergroup_lag"] == {("0", "g", "u"): 0}


def test_a_topic_that_is_gone_is_not_shown() -> None:
    found = samples([GroupRow("g", "Empty", 0, {"gone": {0: 9}})])
    assert found["kafka_consumergroup_current_offset"] == {}
    assert found["kafka_consumergroup_lag_sum"] == {}
