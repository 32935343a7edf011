"""What kafka-python sends arrives, and what it reads is what was sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.clients import check_same, fresh, numbered, take
from conformance.group_scenarios import CommittingScenarios
from conformance.kafka_python_client import KafkaPythonClient
from conformance.record_scenarios import RecordScenarios
from support.brokers import RunningBroker


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[KafkaPythonClient]:
    made = KafkaPythonClient(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(params=[*KafkaPythonClient.eager, *KafkaPythonClient.cooperative])
def assignor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestRecords(RecordScenarios):
    pass


class TestGroups(CommittingScenarios):
    pass


@pytest.mark.parametrize("version", [(0, 11), (1, 0), (2, 5), (3, 9)])
def test_a_client_that_takes_the_broker_for_an_older_one(
    client: KafkaPythonClient, version: tuple[int, int]
) -> None:
    topic, group = fresh("older"), fresh("elders")
    client.create(topic)
    assert client.produce(topic, numbered(20), api_version=version) == list(range(20))
    for expected in (numbered(20), numbered(5, start=15)):
        member = client.member(group, topic, api_version=version)
        first = 20 - len(expected)
        check_same(take(member, len(expected)), expected, first_offset=first)
        member.commit_offset(0, 15, "")
        member.close()
