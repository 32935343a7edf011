"""ApiVersions: the APIs and versions of a broker. Most clients send this request first.

The response has header version 0 in every version, because a client that asks in a version that the
broker does not know must be able to read it.
"""

from __future__ import annotations

from neve.protocol.compiler import define

API_VERSIONS = define(
    """
    ApiVersions 18, versions 0-4, flexible 3+
    request
      client_software_name string 3+
      client_software_version string 3+
    response
      error_code int16
      api_keys []ApiVersion
        api_key int16
        min_version int16
        max_version int16
      throttle_time_ms int32 1+
      supported_features []SupportedFeature 3+ tag 0
        name string
        min_version int16
        max_version int16
      finalized_features_epoch int64 3+ tag 1 = -1
      finalized_features []FinalizedFeature 3+ tag 2
        name string
        max_version_level int16
        min_version_level int16
      zk_migration_ready bool 3+ tag 3
    """
)
ApiVersionsRequest = API_VERSIONS.Request
ApiVersionsResponse = API_VERSIONS.Response
