"""Kafka's own Java client: records and groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokers import RunningBroker
from conformance.group_scenarios import GroupScenarios
from conformance.java_client import JavaClient, start_java_client
from conformance.record_scenarios import RecordScenarios


@pytest.fixture(scope="module")
def client(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    made = start_java_client(broker.bootstrap, tmp_path_factory.mktemp("java") / "log")
    yield made
    made.close()


@pytest.fixture(params=[*JavaClient.eager, *JavaClient.cooperative])
def assignor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestRecords(RecordScenarios):
    pass


class TestGroups(GroupScenarios):
    pass
