"""What administrators do to a simulated cluster: they choose leaders, and delete topics in use."""

from __future__ import annotations

import contextlib

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from neve.protocol.messages.elect_leaders import ELECT_LEADERS
from simulation.network_clients import MOVED, TOPIC, Client, RetryError, pause
from simulation.network_cluster import Cluster, host_name
from simulation.network_topics import Churn

HOST = "admin"
DOOMED, DOOMED_PARTITIONS, DOOMED_BYTES, DOOMED_USES = "doomed", 3, 2_000, 3
# A broker that has joined may not have registered yet, and a partition may be assigned to none.
_NOT_REASSIGNED = frozenset(
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
)
_NOT_ELECTED = frozenset((ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE))


async def reassign(cluster: Cluster) -> None:
    """Name the brokers that should lead a partition, or none, and sometimes elect them at once."""
    with contextlib.suppress(RetryError), contextlib.closing(Client(cluster)) as client:
        await cluster.network.host(HOST).run(_reassign(client))


async def _reassign(client: Client) -> None:
    chance, cluster = runtime.chance(), client.cluster
    partition = chance.randrange(cluster.plan.partitions)
    nodes = chance.sample(cluster.nodes, chance.randint(1, len(cluster.nodes)))
    alter = ALTER_PARTITION_REASSIGNMENTS.Request
    row = alter.Partition(partition_index=partition, replicas=chance.choice([nodes, None]))
    body = alter(topics=[alter.Topic(name=TOPIC, partitions=[row])])
    answer = await client.ask(client.any_broker(), ALTER_PARTITION_REASSIGNMENTS, 1, body)
    codes = {answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)}
    for code in codes - {ErrorCode.NONE} - MOVED - _NOT_REASSIGNED:
        client.promises.unexpected(f"reassign {TOPIC}-{partition} to {row.replicas}", code)
    if chance.random() < 0.5:
        await _elect(client, chance.choice([partition, None]))


async def _elect(client: Client, partition: int | None) -> None:
    """Elect the preferred leader of a partition of the topic, or of all partitions of all."""
    elect = ELECT_LEADERS.Request
    wanted = None if partition is None else [elect.Topic(topic=TOPIC, partitions=[partition])]
    body = elect(topic_partitions=wanted, timeout_ms=4_000)
    answer = await client.ask(client.any_broker(), ELECT_LEADERS, 2, body)
    results = answer.replica_election_results
    codes = {answer.error_code, *(p.error_code for t in results for p in t.partition_result)}
    for code in codes - {ErrorCode.NONE} - MOVED - _NOT_ELECTED:
        client.promises.unexpected("elect leaders", code)


async def delete_a_topic(cluster: Cluster) -> None:
    """Create a topic, write so much to it that it is tiered, and delete it while that goes on.

    A broker may be paused meanwhile: it does not learn of the deletion, and its work stays undone.
    """
    chance, host = runtime.chance(), cluster.network.host(HOST)
    name = f"{DOOMED}{cluster.report.counts['delete a topic']}"
    with contextlib.closing(Client(cluster)) as client:
        topic = Churn(client, name, DOOMED_BYTES)
        topic_id = await host.run(topic.create(DOOMED_PARTITIONS))
        if topic_id is None:
            return
        for _ in range(DOOMED_USES):
            await host.run(topic.use(topic_id))
        await pause(0.0, 3.0)
        other = cluster.network.host(host_name(client.any_node()))
        if chance.random() < 0.5:
            other.pause()
        await host.run(topic.delete(topic_id))
        await pause(0.0, 5.0)
        other.resume()
