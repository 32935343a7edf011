"""The topic of a load, where several loads start at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError

from neve.bench.kafka.measure import BenchError
from neve.bench.kafka.topics import topic
from support.kafka_fakes import failed


class RacedAdmin:
    """A cluster in which another process creates the topic right after it was looked for."""

    error = KafkaError.TOPIC_ALREADY_EXISTS

    def __init__(self, config: dict[str, Any]) -> None:
        del config

    def list_topics(self, name: str | None = None, timeout: float = 0) -> Any:
        del timeout
        led = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=1)})
        found = {} if name is None else {name: led}
        return SimpleNamespace(controller_id=1, brokers={1: None}, topics=found)

    def create_topics(self, wanted: list[Any]) -> dict[str, Any]:
        return {each.topic: failed(self.error, "why") for each in wanted}


class RefusingAdmin(RacedAdmin):
    error = KafkaError.POLICY_VIOLATION


def test_a_topic_that_another_load_just_created_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", RacedAdmin)
    with topic({}, "load", 1) as name:
        assert name == "load"


def test_a_topic_that_may_not_be_created_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", RefusingAdmin)
    with pytest.raises(BenchError, match="topic load cannot be created: why"), topic({}, "load", 1):
        pass
