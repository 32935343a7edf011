"""DescribeCluster: the id of the cluster, and its brokers; if requested, those that ended too."""

from __future__ import annotations

from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING

from neve.broker.access import CLUSTER_OPERATIONS, authorized_operations
from neve.broker.error_codes import admin_error
from neve.broker.errors import ControllerEndpointError, EndpointTypeError
from neve.errors import NeveError
from neve.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from neve.broker.admin.cluster import BrokerAddress
    from neve.broker.broker import Broker
    from neve.broker.context import Context


class _EndpointType(IntEnum):
    BROKERS = 1
    CONTROLLERS = 2


def handle(
    broker: Broker, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    del context
    try:
        _check_endpoint_type(request.endpoint_type)
    except NeveError as error:
        code, reason = admin_error(error)
        return DescribeClusterResponse(error_code=code, error_message=reason)
    rows = [_row(each, is_fenced=False) for each in broker.cluster.live_brokers()]
    if request.include_fenced_brokers:
        rows += [_row(each, is_fenced=True) for each in broker.cluster.fenced_brokers()]
    return DescribeClusterResponse(
        cluster_id=broker.cluster.cluster_id,
        controller_id=broker.cluster.controller_id,
        brokers=sorted(rows, key=attrgetter("broker_id")),
        cluster_authorized_operations=authorized_operations(
            request.include_cluster_authorized_operations, CLUSTER_OPERATIONS
        ),
    )


def _row(broker: BrokerAddress, *, is_fenced: bool) -> DescribeClusterResponse.Broker:
    return DescribeClusterResponse.Broker(
        broker_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        is_fenced=is_fenced,
    )


def _check_endpoint_type(asked: int) -> None:
    if asked == _EndpointType.CONTROLLERS:
        raise ControllerEndpointError(
            "there are no controllers apart from the brokers: ask for endpoint type "
            f"{_EndpointType.BROKERS} (brokers)"
        )
    if asked != _EndpointType.BROKERS:
        raise EndpointTypeError(
            f"endpoint type {asked} does not exist: ask for {_EndpointType.BROKERS} (brokers)"
        )
