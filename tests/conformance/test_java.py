"""Kafka's own Java client: records and groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.clients import check_same, fresh, take, wait_until
from conformance.confluent_client import ConfluentClient
from conformance.group_scenarios import CommittingScenarios, shared, spread
from conformance.java_client import JavaClient, start_java_client
from conformance.record_scenarios import RecordScenarios
from support.brokers import RunningBroker


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


class TestGroups(CommittingScenarios):
    pass


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_members_of_different_clients_share(
    broker: RunningBroker, client: JavaClient, assignor: str
) -> None:
    other = ConfluentClient(broker.bootstrap)
    topic, group = fresh("common"), fresh("commoners")
    client.create(topic, partitions=6)
    try:
        members = [each.member(group, topic, assignor=assignor) for each in (client, other)]
        wait_until(members, lambda: shared(members), "members of two clients share")
        client.produce(topic, spread(0, 120))
        check_same(take(members, 120), spread(0, 120))
    finally:
        client.opened.close()
        other.opened.close()
