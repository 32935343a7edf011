"""Every family of metrics once: its name, kind, labels and what it tells.

Names that begin with `kafka_` are those of kafka_exporter, with its labels, so that dashboards and
alerts made for it work. All others are Neve's own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

_PARTITION = ("partition", "topic")
_TABLE = ("topic", "table")
_GROUP_TOPIC = ("consumergroup", "topic")
_GROUP_PARTITION = ("consumergroup", "partition", "topic")


class Family(NamedTuple):
    """What a scrape says about a name before its samples."""

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
    _gauge("process_resident_memory_bytes", "memory of the process, as the system counts it"),
    _counter("process_cpu_seconds_total", "processor time of the process, user and system"),
    _gauge(
        "neve_build_info", "always 1; the labels say what runs", "version", "python", "platform"
    ),
)
_CLIENTS = (
    _counter(
        "neve_requests_total",
        "requests answered, by Kafka's names of the API and of the error",
        "api",
        "error",
    ),
    _histogram("neve_request_seconds", "from a request's last byte to its answer", "api"),
    _counter("neve_received_bytes_total", "bytes read from clients"),
    _counter("neve_sent_bytes_total", "bytes written to clients"),
    _gauge("neve_connections", "connections of clients that are open"),
    _counter("neve_connections_accepted_total", "connections of clients that were served"),
    _counter(
        "neve_connections_refused_total",
        "connections closed at once: broker.connections.max, broker.connections.per.address.max",
    ),
    _counter("neve_connections_closed_total", "connections that ended, by why", "reason"),
    _counter("neve_produced_records_total", "records appended"),
    _counter("neve_produced_batches_total", "record batches appended"),
    _counter("neve_produced_bytes_total", "bytes of record batches appended"),
    _counter("neve_fetched_bytes_total", "bytes of record batches given to consumers"),
    _histogram("neve_ack_seconds", "from a batch's append to its commit"),
)
_STORE = (
    _counter(
        "neve_store_requests_total",
        "requests to the store that ended, retries and hedges included",
        "operation",
        "outcome",
    ),
    _histogram("neve_store_request_seconds", "how long the store took, by request", "operation"),
    _counter("neve_store_sent_bytes_total", "bytes sent to the store", "operation"),
    _counter("neve_store_received_bytes_total", "bytes received from the store", "operation"),
    _gauge("neve_store_requests_in_flight", "requests to the store at this moment"),
    _gauge("neve_store_requests_waiting", "calls that wait for a slot of the gate"),
    _gauge("neve_store_requests_max", "slots of the gate (store.concurrency.max); 0: no gate"),
    _counter("neve_store_retries_total", "calls sent again after a failure that may pass"),
    _counter("neve_store_retries_refused_total", "retries that the budget did not allow"),
    _counter("neve_store_hedges_total", "calls sent a second time because they were slow"),
    _counter("neve_store_hedges_won_total", "hedges that answered first"),
)
_LOG = (
    _gauge("neve_wal_buffered_bytes", "bytes appended and not yet committed"),
    _gauge("neve_wal_uploads", "WAL objects being uploaded"),
    _gauge("neve_wal_committed_number", "numbers of this process's WAL stream that are committed"),
    _gauge("neve_wal_lag_seconds", "age of the oldest append that is not committed; 0: none"),
    _counter(
        "neve_objects_written_total",
        "objects written to the bucket: WAL objects, roll-ups, segments, indexes, …",
        "kind",
    ),
    _counter("neve_object_bytes_written_total", "bytes of them", "kind"),
    _counter(
        "neve_objects_deleted_total",
        "objects deleted from the bucket: by retention, when tiered, with their topic",
        "kind",
    ),
    _gauge("neve_partitions_led", "partitions that this broker leads"),
    _gauge("neve_untiered_bytes", "committed bytes that are in no segment yet"),
    _gauge("neve_untiered_age_seconds", "since when the oldest of them are known here; 0: none"),
)
_READING = (
    _counter(
        "neve_reads_total",
        "reads of one partition for a fetch: from memory, of what was read ahead, or waiting for "
        "the store",
        "source",
    ),
    _counter("neve_catchup_downloads_total", "pieces downloaded for consumers that lag"),
    _counter(
        "neve_catchup_bytes_total",
        "bytes downloaded for consumers that lag, those read ahead included",
    ),
    _counter(
        "neve_catchup_pauses_total",
        "reads of consumers that lag which waited because others were served (fetch.catchup.share)",
    ),
    _counter(
        "neve_index_cache_requests_total",
        "indexes of segments asked for: found in memory, in a file, or loaded from the store",
        "source",
    ),
    _counter("neve_index_cache_failures_total", "loads of indexes that failed"),
)
_MEMORY = (
    _gauge("neve_memory_used_bytes", "what is held in memory, by what holds it", "what"),
    _gauge("neve_memory_max_bytes", "the bound on it", "what"),
)
_GROUPS = (
    _gauge("neve_groups", "consumer groups that this broker coordinates, by state", "state"),
    _gauge("kafka_consumergroup_members", "members of a group", "consumergroup"),
    _gauge(
        "kafka_consumergroup_current_offset",
        "the offset a group committed; -1: none, where it committed another of the topic",
        *_GROUP_PARTITION,
    ),
    _gauge(
        "kafka_consumergroup_lag",
        "records a group has not committed yet; -1: it committed none here",
        *_GROUP_PARTITION,
    ),
    _gauge(
        "kafka_consumergroup_current_offset_sum",
        "the offsets a group committed, over all partitions of a topic",
        *_GROUP_TOPIC,
    ),
    _gauge(
        "kafka_consumergroup_lag_sum",
        "records a group has not committed yet, over all partitions of a topic",
        *_GROUP_TOPIC,
    ),
)
_KAFKA = (
    _gauge("kafka_brokers", "brokers of the cluster that are not superseded"),
    _gauge("kafka_broker_info", "always 1; a broker and its address", "address", "id"),
    _gauge("kafka_topic_partitions", "partitions of a topic", "topic"),
    _gauge(
        "kafka_topic_partition_current_offset",
        "the next offset a consumer will see; only of partitions that this broker leads",
        *_PARTITION,
    ),
    _gauge(
        "kafka_topic_partition_oldest_offset",
        "the first offset that can be read; only of partitions that this broker leads",
        *_PARTITION,
    ),
    _gauge("kafka_topic_partition_leader", "node id of the leader; -1: none", *_PARTITION),
    _gauge(
        "kafka_topic_partition_leader_is_preferred",
        "1 where there is a leader: Neve prefers none",
        *_PARTITION,
    ),
    _gauge("kafka_topic_partition_replicas", "always 1: the bucket replicates", *_PARTITION),
    _gauge("kafka_topic_partition_in_sync_replica", "1 where there is a leader", *_PARTITION),
    _gauge(
        "kafka_topic_partition_under_replicated_partition",
        "1 where there is no leader",
        *_PARTITION,
    ),
)

_LAKE = (
    _counter("neve_lake_rows_total", "rows that this pipeline committed", *_TABLE),
    _counter(
        "neve_lake_dead_letters_total",
        "values that did not fit, and were kept as dead letters or skipped",
        *_TABLE,
    ),
    _counter("neve_lake_commits_total", "commits that brought rows or dead letters", *_TABLE),
    _counter(
        "neve_lake_lost_offsets_total", "offsets that were removed before they were read", *_TABLE
    ),
    _gauge(
        "neve_lake_lag_offsets",
        "offsets that the last step left to be read; absent: not known",
        *_TABLE,
    ),
    _gauge("neve_lake_failing", "1 where the last step failed or found a loss", *_TABLE),
    _gauge(
        "neve_lake_last_commit_timestamp_seconds",
        "when this pipeline last committed rows or dead letters; absent: not yet",
        *_TABLE,
    ),
    _gauge(
        "neve_lake_last_step_timestamp_seconds",
        "when this pipeline last ended a step of the topic; absent: not yet",
        *_TABLE,
    ),
)

BROKER: dict[str, Family] = {
    family.name: family
    for family in (*_PROCESS, *_CLIENTS, *_STORE, *_LOG, *_READING, *_MEMORY, *_KAFKA, *_GROUPS)
}
"""What a broker shows."""
PIPELINE: dict[str, Family] = {family.name: family for family in (*_PROCESS, *_LAKE)}
"""What `neve lake run` shows."""
CATALOGUE: dict[str, Family] = {**BROKER, **PIPELINE}
