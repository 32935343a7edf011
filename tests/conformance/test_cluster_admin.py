"""kafka-python's admin client chooses and elects leaders, at two live brokers.

It is the only one that can: confluent-kafka 2.16 raises SystemError in `elect_leaders`, and has no
call for reassignments; aiokafka has neither.
"""

from __future__ import annotations

import asyncio

from conformance.kafka_python_client import TopicPartition
from neve.broker.broker import Broker
from neve.protocol.codes import ErrorCode
from support.two_brokers import refresh, two_running_brokers

# isort: split
from kafka.admin import KafkaAdminClient


def leaders(broker: Broker) -> list[int]:
    """The node ids of the topic's leaders, as a broker knows them."""
    state = broker.node.cluster.state
    topic = state.topic("t")
    assert topic is not None
    return [state.brokers[row.leader].node_id for row in topic.partitions]


async def test_kafka_python_reassigns_lists_and_elects() -> None:
    async with two_running_brokers() as (one, two):
        await two.membership.close()
        address = f"{two.advertised.host}:{two.advertised.port}"

        def act() -> None:
            admin = KafkaAdminClient(bootstrap_servers=address)
            try:
                at = TopicPartition("t", 1)
                assert admin.alter_partition_reassignments({at: [2]}) == {at: None}
                listed = admin.list_partition_reassignments()
                assert listed[at]["replicas"] == [2, 1]
                admin.elect_leaders(0, {"t": [1]})
                assert admin.list_partition_reassignments() == {}
                refused = admin.alter_partition_reassignments({at: [9]})[at]
                assert refused.errno == ErrorCode.INVALID_REPLICA_ASSIGNMENT
                assert admin.alter_partition_reassignments({at: None}) == {at: None}
            finally:
                admin.close()

        await asyncio.to_thread(act)
        await refresh(one)
        assert leaders(one) == [1, 2]
