"""DescribeCluster: the brokers, for admin clients."""

from __future__ import annotations

from neve.protocol.compiler import define

DESCRIBE_CLUSTER = define(
    """
    DescribeCluster 60, versions 0-2, flexible 0+
    request
      include_cluster_authorized_operations bool
      endpoint_type int8 1+ = 1
      include_fenced_brokers bool 2+
    response
      throttle_time_ms int32
      error_code int16
      error_message string nullable = null
      endpoint_type int8 1+ = 1
      cluster_id string
      controller_id int32 = -1
      brokers []Broker
        broker_id int32
        host string
        port int32
        rack string nullable = null
        is_fenced bool 2+
      cluster_authorized_operations int32 = -2147483648
    """
)
DescribeClusterRequest = DESCRIBE_CLUSTER.Request
DescribeClusterResponse = DESCRIBE_CLUSTER.Response
