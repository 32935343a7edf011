"""IncrementalAlterConfigs: set or remove single configs, or add and remove items of lists."""

from __future__ import annotations

from neve.protocol.compiler import define

INCREMENTAL_ALTER_CONFIGS = define(
    """
    IncrementalAlterConfigs 44, versions 0-1, flexible 1+
    request
      resources []Resource
        resource_type int8
        resource_name string
        configs []Config
          name string
          config_operation int8
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
IncrementalAlterConfigsRequest = INCREMENTAL_ALTER_CONFIGS.Request
IncrementalAlterConfigsResponse = INCREMENTAL_ALTER_CONFIGS.Response
