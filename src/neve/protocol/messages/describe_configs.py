"""DescribeConfigs: the configs of topics and brokers, and where each value comes from."""

from __future__ import annotations

from neve.protocol.compiler import define

DESCRIBE_CONFIGS = define(
    """
    DescribeConfigs 32, versions 0-4, flexible 4+
    request
      resources []Resource
        resource_type int8
        resource_name string
        configuration_keys []string nullable
      include_synonyms bool 1+
      include_documentation bool 3+
    response
      throttle_time_ms int32
      results []Resource
        error_code int16
        error_message string nullable
        resource_type int8
        resource_name string
        configs []Config
          name string
          value string nullable
          read_only bool
          is_default bool 0
          config_source int8 1+ = -1
          is_sensitive bool
          synonyms []Synonym 1+
            name string
            value string nullable
            source int8
          config_type int8 3+
          documentation string 3+ nullable
    """
)
DescribeConfigsRequest = DESCRIBE_CONFIGS.Request
DescribeConfigsResponse = DESCRIBE_CONFIGS.Response
