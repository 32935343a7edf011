"""What aiokafka sends arrives, and what it reads is what was sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.aiokafka_client import AioKafkaClient
from conformance.group_scenarios import CommittingScenarios
from conformance.record_scenarios import RecordScenarios
from support.brokers import RunningBroker


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[AioKafkaClient]:
    made = AioKafkaClient(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(params=[*AioKafkaClient.eager, *AioKafkaClient.cooperative])
def assignor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestRecords(RecordScenarios):
    pass


class TestGroups(CommittingScenarios):
    pass
