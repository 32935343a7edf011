"""DescribeCluster: the cluster's id and its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.access import CLUSTER_OPERATIONS, authorized_operations
from neve.broker.handlers.cluster_view import live_brokers
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    broker: Broker, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    del context
    asked = request.endpoint_type
    if asked == _CONTROLLERS:
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this address is a broker's, and there are no controllers apart: ask for brokers",
        )
    if asked != _BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"no endpoints are of type {asked}: ask for 1"
        )
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in live_brokers(broker)
        ],
        cluster_authorized_operations=authorized_operations(
            request.include_cluster_authorized_operations, CLUSTER_OPERATIONS
        ),
    )


def _refused(code: ErrorCode, reason: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=reason)
