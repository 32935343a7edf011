from __future__ import annotations

import pytest

from neve.broker.access import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from neve.broker.handlers import describe_cluster
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.describe_cluster import DESCRIBE_CLUSTER
from support.broker_world import ADVERTISED, NODE_ID, ask, start_broker, versions


@pytest.mark.parametrize("version", versions(DESCRIBE_CLUSTER))
async def test_the_cluster_is_told_in_every_version(version: int) -> None:
    broker = await start_broker()
    answer = await ask(broker, describe_cluster, DESCRIBE_CLUSTER, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.controller_id) == (
        broker.node.cluster.state.cluster_id,
        NODE_ID,
    )
    (listed,) = answer.brokers
    assert (listed.broker_id, listed.host, listed.port) == (NODE_ID, *ADVERTISED)
    assert (listed.rack, listed.is_fenced) == (None, False)
    assert answer.cluster_authorized_operations == NOT_ASKED_FOR
    await broker.node.abort()


async def test_operations_are_told_where_asked_for() -> None:
    broker = await start_broker()
    answer = await ask(
        broker, describe_cluster, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True
    )
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    await broker.node.abort()


@pytest.mark.parametrize(
    ("asked", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_other_endpoints_are_refused(asked: int, code: ErrorCode) -> None:
    broker = await start_broker()
    answer = await ask(broker, describe_cluster, DESCRIBE_CLUSTER, 1, endpoint_type=asked)
    assert answer.error_code == code
    assert answer.error_message
    await broker.node.abort()
