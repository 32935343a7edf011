"""DescribeCluster: the cluster's id and its brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.broker.access import CLUSTER_OPERATIONS, authorized_operations
from neve.broker.admin.cluster import live_brokers
from neve.broker.error_codes import admin_error
from neve.broker.errors import ControllerEndpointError, EndpointTypeError
from neve.errors import NeveError
from neve.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from neve.broker.broker import Broker
    from neve.broker.context import Context

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    broker: Broker, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    del context
    try:
        _check_endpoint_type(request.endpoint_type)
    except NeveError as error:
        code, reason = admin_error(error)
        return DescribeClusterResponse(error_code=code, error_message=reason)
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


def _check_endpoint_type(asked: int) -> None:
    if asked == _CONTROLLERS:
        raise ControllerEndpointError(
            "this address is a broker's, and there are no controllers apart: ask for brokers"
        )
    if asked != _BROKERS:
        raise EndpointTypeError(f"no endpoints are of type {asked}: ask for 1")
