"""InitProducerId: an id for an idempotent producer.

Version 6 (two-phase commit) is not supported: Kafka declares it unstable, and it has no use without
transactions.
"""

from __future__ import annotations

from neve.protocol.compiler import define

INIT_PRODUCER_ID = define(
    """
    InitProducerId 22, versions 0-5, flexible 2+
    request
      transactional_id string nullable
      transaction_timeout_ms int32
      producer_id int64 3+ = -1
      producer_epoch int16 3+ = -1
    response
      throttle_time_ms int32
      error_code int16
      producer_id int64 = -1
      producer_epoch int16
    """
)
InitProducerIdRequest = INIT_PRODUCER_ID.Request
InitProducerIdResponse = INIT_PRODUCER_ID.Response
