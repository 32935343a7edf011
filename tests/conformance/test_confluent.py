"""What confluent-kafka sends arrives, and what it reads is what was sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from conformance.aiokafka_client import AioKafkaClient
from conformance.clients import check_same, fresh, numbered, take, wait_until
from conformance.confluent_client import ConfluentClient
from conformance.group_scenarios import CommittingScenarios, shared, spread
from conformance.kafka_python_client import KafkaPythonClient
from conformance.record_scenarios import RecordScenarios
from support.brokers import RunningBroker


@pytest.fixture(scope="module")
def client(broker: RunningBroker) -> Iterator[ConfluentClient]:
    made = ConfluentClient(broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(params=[*ConfluentClient.eager, *ConfluentClient.cooperative])
def assignor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestRecords(RecordScenarios):
    pass


class TestGroups(CommittingScenarios):
    pass


def test_members_of_different_clients_share(broker: RunningBroker, client: ConfluentClient) -> None:
    clients = [client, AioKafkaClient(broker.bootstrap), KafkaPythonClient(broker.bootstrap)]
    try:
        topic, group = fresh("common"), fresh("commoners")
        client.create(topic, partitions=6)
        members = [each.member(group, topic) for each in clients]
        wait_until(members, lambda: shared(members), "members of three clients share")
        sent = spread(0, 120)
        client.produce(topic, sent)
        check_same(take(members, 120), sent)
    finally:
        for each in clients:
            each.opened.close()
        for each in clients[1:]:
            each.close()


def test_topics_by_a_pattern(client: ConfluentClient) -> None:
    stem = fresh("patterned")
    client.create(f"{stem}-a")
    member = client.member(fresh("pattern"), f"^{stem}-.*", **client.frequent_looks)
    client.produce(f"{stem}-a", numbered(3))
    check_same(take(member, 3), numbered(3))
    member.commit()
    client.create(f"{stem}-b")
    client.produce(f"{stem}-b", numbered(4))
    check_same(take(member, 4), numbered(4))
    client.opened.close()


def test_transactions_are_refused_at_once(broker: RunningBroker) -> None:
    given = {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "log_level": 0}
    producer = Producer(given)
    with pytest.raises(KafkaException, match="transactions are not supported"):
        producer.init_transactions(10)
