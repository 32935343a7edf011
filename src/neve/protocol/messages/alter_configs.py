"""AlterConfigs: replace all configs of a resource by the given ones."""

from __future__ import annotations

from neve.protocol.compiler import define

ALTER_CONFIGS = define(
    """
    AlterConfigs 33, versions 0-2, flexible 2+
    request
      resources []Resource
        resource_type int8
        resource_name string
        configs []Config
          name string
          value string nullable
      validate_only bool
    response
      throttle_time_ms int32
      responses []Resource
        error_code int16
        error_message string nullable
        resource_type int8
        resource_name string
    """
)
AlterConfigsRequest = ALTER_CONFIGS.Request
AlterConfigsResponse = ALTER_CONFIGS.Response
