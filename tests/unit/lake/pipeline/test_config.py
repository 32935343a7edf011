from __future__ import annotations

from pathlib import Path

import pytest

from neve.errors import InvalidError
from neve.lake.pipeline.config import (
    MaintenanceConfig,
    PipelineConfig,
    PipelineTopic,
    load_config,
    parse_config,
)

SMALLEST = {"store": "./data", "topics": [{"topic": "orders"}]}


def test_a_store_and_a_topic_are_enough() -> None:
    config = parse_config(SMALLEST)
    (topic,) = config.topics
    assert (topic.table, topic.value, topic.on_error) == (
        "lake.orders",
        {"format": "raw"},
        "dead_letters",
    )
    assert topic.partition_by == ["day(_kafka.timestamp)"]
    assert (config.interval_seconds, config.batch_bytes) == (10.0, 4_000_000_000)
    assert config.maintenance.enabled


def test_a_file_says_the_same_as_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("store: ./data\ntopics:\n  - topic: orders\n")
    assert load_config(path) == parse_config(SMALLEST)


@pytest.mark.parametrize(
    ("topic", "table", "full"),
    [
        ("orders", "", "shop.orders"),
        ("eu.orders-v2", "", "shop.eu_orders_v2"),
        ("orders", "sales", "shop.sales"),
        ("orders", "other.sales", "other.sales"),
    ],
)
def test_tables_have_full_names(topic: str, table: str, full: str) -> None:
    given = {"store": "s", "namespace": "shop", "topics": [{"topic": topic, "table": table}]}
    assert parse_config(given).topics[0].table == full


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"store": ""}, "store is empty"),
        ({"topics": []}, "topics is empty"),
        ({"stores": "x"}, "unknown field stores"),
        ({"topics": [{"topic": "a", "on_eror": "skip"}]}, r"on_eror \(at topics\[0\]\)$"),
        ({"interval": "soon"}, "interval: 'soon' is not a duration"),
        ({"interval": "0s"}, "above zero"),
        ({"batch_size": "1 elephant"}, "batch_size"),
        ({"namespace": "a b"}, "namespace: 'a b' is not a valid name"),
        ({"topics": [{"topic": "a", "on_error": "panic"}]}, "on_error"),
        ({"topics": [{"topic": "a"}, {"topic": "a", "table": "b"}]}, "topic a is given twice"),
        ({"topics": [{"topic": "a.b"}, {"topic": "a_b"}]}, "table lake.a_b is given twice"),
        ({"topics": [{"topic": "a", "table": "x.y z"}]}, "'y z' is not a valid name"),
        ({"topics": [{"topic": ""}]}, "a topic without a name"),
        ({"topics": [{"topic": "a"}, {"topic": "a-dead-letters"}]}, "dead letters of lake.a go"),
        ({"maintenance": {"small_file_size": "1GB"}}, "over and over"),
        ({"maintenance": {"keep_snapshots": 0}}, "1 or more"),
    ],
)
def test_a_mistake_is_told_by_its_place(change: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        parse_config({**SMALLEST, **change})


@pytest.mark.parametrize("text", ["a: [", "- a\n- b", "just words", "", b"\xff"])
def test_what_is_no_pipeline_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidError):
        parse_config(text)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="No such file"):
        load_config(tmp_path / "none.yaml")


def test_every_field_is_described_with_its_default() -> None:
    text = (Path(__file__).parents[4] / "docs" / "users" / "pipeline.md").read_text()
    for kind in (PipelineConfig, PipelineTopic, MaintenanceConfig):
        for name in kind.__struct_fields__:
            assert f"| `{name}` |" in text, name
