"""All metric families: name, kind, labels and help text, each declared once.

Names that begin with `kafka_`, and their labels, are those of kafka_exporter, so that dashboards
and alerts made for it work. All others are Neve's own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

_PARTITION = ("partition", "topic")
_TABLE = ("topic", "table")
_GROUP_TOPIC = ("consumergroup", "topic")
_GROUP_PARTITION = ("consumergroup", "partition", "topic")


class Family(NamedTuple):
    """One metric family."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, help_text: str, *labels: str) -> Family:
    return Family(name, "counter", help_text, labels)


def _gauge(name: str, help_text: str, *labels: str) -> Family:
    return Family(name, "gauge", help_text, labels)


def _histogram(name: str, help_text: str, *labels: str) -> Family:
    return Family(name, "histogram", help_text, labels)


_PROCESS = (
    _gauge("process_resident_memory_bytes", "resident memory of the process"),
    _counter("process_cpu_seconds_total", "CPU time of the process, user and system"),
    _gauge(
        "neve_build_info", "always 1; the labels are the versions", "version", "python", "platform"
    ),
)
_CLIENTS = (
    _counter(
        "neve_requests_total",
        "requests answered, by Kafka's name of the API and of the error",
        "api",
        "error",
    ),
    _histogram("neve_request_seconds", "time from a request's last byte to its response", "api"),
    _counter("neve_received_bytes_total", "bytes read from clients"),
    _counter("neve_sent_bytes_total", "bytes written to clients"),
    _gauge("neve_connections", "open client connections"),
    _counter("neve_connections_accepted_total", "client connections accepted"),
    _counter(
        "neve_connections_refused_total",
        "connections rejected by broker.connections.max or broker.connections.per.address.max",
    ),
    _counter("neve_connections_closed_total", "client connections closed, by reason", "reason"),
    _counter("neve_produced_records_total", "records appended"),
    _counter("neve_produced_batches_total", "record batches appended"),
    _counter("neve_produced_bytes_total", "bytes of record batches appended"),
    _counter("neve_fetched_bytes_total", "bytes of record batches sent to consumers"),
    _histogram("neve_ack_seconds", "time from a batch's append to its commit"),
)
_STORE = (
    _counter(
        "neve_store_requests_total",
        "completed requests to the store, including retries and hedges",
        "operation",
        "outcome",
    ),
    _histogram("neve_store_request_seconds", "time of a request to the store", "operation"),
    _counter("neve_store_sent_bytes_total", "bytes sent to the store", "operation"),
    _counter("neve_store_received_bytes_total", "bytes received from the store", "operation"),
    _gauge("neve_store_requests_in_flight", "requests to the store in flight"),
    _gauge("neve_store_requests_waiting", "calls that wait for store.concurrency.max"),
    _gauge("neve_store_requests_max", "store.concurrency.max; 0: no limit"),
    _counter("neve_store_retries_total", "retries after transient failures"),
    _counter("neve_store_retries_refused_total", "retries that the retry budget did not allow"),
    _counter("neve_store_hedges_total", "calls sent a second time because they were slow"),
    _counter("neve_store_hedges_won_total", "hedges that returned before the first request"),
)
_LOG = (
    _gauge("neve_wal_buffered_bytes", "bytes appended and not yet committed"),
    _gauge("neve_wal_uploads", "WAL objects being uploaded"),
    _gauge("neve_wal_committed_number", "committed numbers of this process's WAL stream"),
    _gauge("neve_wal_lag_seconds", "age of the oldest uncommitted append; 0: none"),
    _counter(
        "neve_objects_written_total",
        "objects written to the bucket: WAL objects, roll-ups, segments, indexes, …",
        "kind",
    ),
    _counter("neve_object_bytes_written_total", "bytes of the objects written", "kind"),
    _counter(
        "neve_objects_deleted_total",
        "objects deleted from the bucket: by retention, after tiering, with their topic",
        "kind",
    ),
    _gauge("neve_partitions_led", "partitions that this broker leads"),
    _gauge("neve_untiered_bytes", "committed bytes that are not yet in a segment"),
    _gauge(
        "neve_untiered_age_seconds",
        "time since this process learned of the oldest untiered bytes; 0: none",
    ),
)
_CLUSTER = (
    _gauge(
        "neve_brokers",
        "brokers by state: live; draining: live, but should lead nothing; fenced: ended and not "
        "started again",
        "state",
    ),
    _gauge("neve_broker_leaders", "partitions that a live broker leads, by its node id", "id"),
    _gauge("neve_cluster_log_position", "numbers of the cluster log that this broker has read"),
    _gauge(
        "neve_cluster_log_numbers_behind",
        "numbers that other brokers are known to have read and this one has not",
    ),
    _counter(
        "neve_dead_verdicts_total",
        "brokers that seemed dead to this one: silent, or their hosts refused connections",
        "reason",
    ),
    _counter("neve_brokers_declared_dead_total", "failovers: brokers that this one declared dead"),
    _counter(
        "neve_partitions_recovered_total",
        "partitions that this broker took over from others, after a failover or by a move",
    ),
    _counter(
        "neve_partitions_pulled_total",
        "moves: partitions that others released to this broker when it asked for them",
    ),
    _counter(
        "neve_partitions_released_total",
        "partitions that this broker released to others, by a move or when it stopped",
    ),
    _counter(
        "neve_rebalance_rounds_total",
        "rounds of rebalancing in which this broker asked others for partitions",
    ),
)
_READING = (
    _counter(
        "neve_reads_total",
        "reads of one partition for a fetch: from memory, from read-ahead, or from the store",
        "source",
    ),
    _counter("neve_catchup_downloads_total", "blocks downloaded for catch-up reads"),
    _counter(
        "neve_catchup_bytes_total",
        "bytes downloaded for catch-up reads, including read-ahead",
    ),
    _counter(
        "neve_catchup_pauses_total",
        "catch-up reads delayed in favour of live traffic (fetch.catchup.share)",
    ),
    _counter(
        "neve_index_cache_requests_total",
        "lookups of segment indexes: found in memory, in a file, or loaded from the store",
        "source",
    ),
    _counter("neve_index_cache_failures_total", "failed loads of indexes"),
)
_REPLICAS = (
    _gauge(
        "neve_replica_lag_objects",
        "committed WAL objects that this follower has not read yet, by the node that it follows",
        "node",
    ),
    _gauge(
        "neve_replica_lag_seconds",
        "time since this follower had read everything, by the node that it follows; 0: it has",
        "node",
    ),
    _gauge("neve_replica_cached_bytes", "memory used by the streams that this broker follows"),
    _gauge(
        "neve_replica_partitions_open",
        "partitions of other leaders that consumers read from this broker",
    ),
)
_MEMORY = (
    _gauge("neve_memory_used_bytes", "memory used, by component", "what"),
    _gauge("neve_memory_max_bytes", "memory limit, by component", "what"),
)
_GROUPS = (
    _gauge("neve_groups", "consumer groups that this broker coordinates, by state", "state"),
    _gauge("kafka_consumergroup_members", "members of a group", "consumergroup"),
    _gauge(
        "kafka_consumergroup_current_offset",
        "committed offset of a group; -1: none, while other partitions of the topic have one",
        *_GROUP_PARTITION,
    ),
    _gauge(
        "kafka_consumergroup_lag",
        "lag of a group in records; -1: no committed offset",
        *_GROUP_PARTITION,
    ),
    _gauge(
        "kafka_consumergroup_current_offset_sum",
        "sum of a group's committed offsets over all partitions of a topic",
        *_GROUP_TOPIC,
    ),
    _gauge(
        "kafka_consumergroup_lag_sum",
        "lag of a group in records, over all partitions of a topic",
        *_GROUP_TOPIC,
    ),
)
_PEERS = (
    _counter("neve_peer_sent_bytes_total", "bytes sent to other brokers as requests"),
    _counter("neve_peer_received_bytes_total", "bytes received from other brokers as responses"),
)
_KAFKA = (
    _gauge("kafka_brokers", "brokers of the cluster that are not superseded"),
    _gauge("kafka_broker_info", "always 1; a broker and its address", "address", "id"),
    _gauge("kafka_topic_partitions", "partitions of a topic", "topic"),
    _gauge(
        "kafka_topic_partition_current_offset",
        "high watermark: the next offset to be written; only partitions that this broker leads",
        *_PARTITION,
    ),
    _gauge(
        "kafka_topic_partition_oldest_offset",
        "log start offset; only partitions that this broker leads",
        *_PARTITION,
    ),
    _gauge("kafka_topic_partition_leader", "node id of the leader; -1: none", *_PARTITION),
    _gauge(
        "kafka_topic_partition_leader_is_preferred",
        "1 if there is a leader, and no client has chosen another one (reassignment)",
        *_PARTITION,
    ),
    _gauge(
        "kafka_topic_partition_replicas",
        "brokers that serve reads of it: the leader, and the followers of its stream",
        *_PARTITION,
    ),
    _gauge(
        "kafka_topic_partition_in_sync_replica",
        "those that have not lagged for longer than cluster.follow.lag.ms; 0 without a leader",
        *_PARTITION,
    ),
    _gauge(
        "kafka_topic_partition_under_replicated_partition",
        "1 if there is no leader, or a follower lags; no record is at risk then",
        *_PARTITION,
    ),
)

_LAKE = (
    _counter("neve_lake_rows_total", "rows that this pipeline committed", *_TABLE),
    _counter(
        "neve_lake_dead_letters_total",
        "values that could not be decoded and were written as dead letters or skipped",
        *_TABLE,
    ),
    _counter("neve_lake_commits_total", "commits with rows or dead letters", *_TABLE),
    _counter(
        "neve_lake_lost_offsets_total", "offsets deleted before the pipeline read them", *_TABLE
    ),
    _gauge(
        "neve_lake_lag_offsets",
        "offsets left to read after the last step; absent: unknown",
        *_TABLE,
    ),
    _gauge("neve_lake_failing", "1 if the last step failed", *_TABLE),
    _gauge(
        "neve_lake_last_commit_timestamp_seconds",
        "time of this pipeline's last commit with rows or dead letters; absent: none yet",
        *_TABLE,
    ),
    _gauge(
        "neve_lake_last_step_timestamp_seconds",
        "time when this pipeline last completed a step of the topic; absent: none yet",
        *_TABLE,
    ),
)

_OF_BROKERS = (
    *_PROCESS,
    *_CLIENTS,
    *_STORE,
    *_LOG,
    *_CLUSTER,
    *_REPLICAS,
    *_READING,
    *_MEMORY,
    *_PEERS,
    *_KAFKA,
    *_GROUPS,
)
BROKER: dict[str, Family] = {family.name: family for family in _OF_BROKERS}
"""The families of a broker."""
PIPELINE: dict[str, Family] = {family.name: family for family in (*_PROCESS, *_LAKE)}
"""The families of `neve lake run`."""
CATALOGUE: dict[str, Family] = {**BROKER, **PIPELINE}
