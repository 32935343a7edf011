"""DescribeGroups: the state and the members of each group."""

from __future__ import annotations

from neve.protocol.compiler import define

DESCRIBE_GROUPS = define(
    """
    DescribeGroups 15, versions 0-6, flexible 5+
    request
      groups []string
      include_authorized_operations bool 3+
    response
      throttle_time_ms int32 1+
      groups []Group
        error_code int16
        error_message string 6+ nullable = null
        group_id string
        group_state string
        protocol_type string
        protocol_data string
        members []Member
          member_id string
          group_instance_id string 4+ nullable = null
          client_id string
          client_host string
          member_metadata bytes
          member_assignment bytes
        authorized_operations int32 3+ = -2147483648
    """
)
DescribeGroupsRequest = DESCRIBE_GROUPS.Request
DescribeGroupsResponse = DESCRIBE_GROUPS.Response
