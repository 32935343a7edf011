"""Every API that Neve supports, by key. Others are not advertised.

Each API has one module. A new API must be imported and listed here. The tests then compare it with
other implementations of the protocol.
"""

from __future__ import annotations

from neve.protocol.compiler import AnyApi
from neve.protocol.messages.alter_configs import ALTER_CONFIGS
from neve.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.delete_groups import DELETE_GROUPS
from neve.protocol.messages.delete_records import DELETE_RECORDS
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from neve.protocol.messages.describe_cluster import DESCRIBE_CLUSTER
from neve.protocol.messages.describe_configs import DESCRIBE_CONFIGS
from neve.protocol.messages.describe_groups import DESCRIBE_GROUPS
from neve.protocol.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from neve.protocol.messages.describe_producers import DESCRIBE_PRODUCERS
from neve.protocol.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from neve.protocol.messages.elect_leaders import ELECT_LEADERS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.heartbeat import HEARTBEAT
from neve.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from neve.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.leave_group import LEAVE_GROUP
from neve.protocol.messages.list_groups import LIST_GROUPS
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.offset_delete import OFFSET_DELETE
from neve.protocol.messages.offset_fetch import OFFSET_FETCH
from neve.protocol.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from neve.protocol.messages.produce import PRODUCE
from neve.protocol.messages.sync_group import SYNC_GROUP
from neve.protocol.messages.unregister_broker import UNREGISTER_BROKER

_ALL: tuple[AnyApi, ...] = (
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    SYNC_GROUP,
    UNREGISTER_BROKER,
)

APIS: dict[int, AnyApi] = {api.key: api for api in sorted(_ALL, key=lambda api: api.key)}

if len(APIS) != len(_ALL):
    raise AssertionError("two APIs have the same key")
