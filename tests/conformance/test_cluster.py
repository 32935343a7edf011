"""What all clients do against a cluster of three: a sample of the conformance tests.

Every other file runs against a cluster too, in the long form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.aiokafka_client import AioKafkaClient
from conformance.clients import Client, check_same, fresh, take
from conformance.confluent_client import ConfluentClient
from conformance.group_scenarios import PARTITIONS, GroupScenarios, shared, spread
from conformance.java_client import start_java_client
from conformance.kafka_python_client import KafkaPythonClient
from conformance.kafkajs_client import start_kafkajs_client
from conformance.record_scenarios import RecordScenarios
from support.brokers import RunningBroker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("broker", [3], ids=["cluster"], indirect=True, scope="module"),
]

CLIENTS: dict[str, Callable[[str, Path], Client]] = {
    "confluent": lambda bootstrap, _: ConfluentClient(bootstrap),
    "aiokafka": lambda bootstrap, _: AioKafkaClient(bootstrap),
    "kafka-python": lambda bootstrap, _: KafkaPythonClient(bootstrap),
    "kafkajs": start_kafkajs_client,
    "java": start_java_client,
}


@pytest.fixture(scope="module", params=CLIENTS)
def client(
    request: pytest.FixtureRequest, broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    log = tmp_path_factory.mktemp(request.param) / "log"
    made = CLIENTS[request.param](broker.bootstrap, log)
    yield made
    made.close()


@pytest.fixture(params=["roundrobin"])
def assignor(request: pytest.FixtureRequest) -> str:
    """The one that all of these clients have."""
    name: str = request.param
    return name


class TestSample:
    """Scenarios that need more than one partition or another broker than the first."""

    @pytest.fixture(autouse=True)
    def _nothing_left_open(self, client: Client) -> Iterator[None]:
        yield
        client.opened.close()

    test_many_partitions = RecordScenarios.test_many_partitions
    test_a_waiting_reader = RecordScenarios.test_a_waiting_reader_is_told_at_once
    test_an_empty_partition = RecordScenarios.test_an_empty_partition_does_not_hold_up_a_full_one
    test_by_seeking_and_by_time = RecordScenarios.test_from_an_offset_by_seeking_and_by_time
    test_a_topic_is_created_when_it_is_written_to = (
        RecordScenarios.test_a_topic_is_created_when_it_is_written_to
    )
    test_members_come_and_go = GroupScenarios.test_members_come_and_go
    test_a_group_goes_on = GroupScenarios.test_a_group_goes_on_from_what_it_committed
    test_commits_carry_their_metadata = GroupScenarios.test_commits_carry_their_metadata

    def test_several_groups(self, client: Client) -> None:
        """Their coordinators are on different brokers."""
        topic = fresh("between-groups")
        client.create(topic, partitions=PARTITIONS)
        sent = spread(0, 60)
        client.produce(topic, sent)
        for _ in range(5):
            member = client.member(fresh("group"), topic, assignor=client.eager[0])
            check_same(take(member, 60), sent)
            assert shared([member])
            member.commit()
            member.close()
