"""Settings of a serving process: listeners, limits and logs."""

from __future__ import annotations

from dataclasses import dataclass

from neve.settings.declare import MIB, setting


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """A broker's identity, listener, connections and memory."""

    store: str = setting("broker.store", "./neve-data", "URL or folder of the bucket.")
    listen: str = setting(
        "broker.listen",
        "127.0.0.1:9092",
        "host:port for Kafka clients. Port 0 selects a free port.",
    )
    advertise: str = setting(
        "broker.advertise",
        "",
        "host:port that clients connect to. Empty: the listening address, or this machine's "
        "host name if the broker listens on all addresses.",
    )
    node_id: int = setting(
        "broker.node.id",
        1,
        "Node id of this broker. A second process with the same id fences the first.",
        minimum=0,
        maximum=2**31 - 1,
    )
    rack: str = setting("broker.rack", "", "Zone of this broker, as reported to clients.")
    connections_max: int = setting(
        "broker.connections.max",
        5_000,
        "Maximum number of client connections. Further ones are closed. The broker checks it at"
        " the start against the limit on open files, some of which it reserves for the store "
        "and HTTP.",
        minimum=1,
    )
    address_connections_max: int = setting(
        "broker.connections.per.address.max",
        2_500,
        "Maximum number of client connections from one address. Behind a proxy or NAT, where "
        "all clients share an address, set it to broker.connections.max.",
        minimum=1,
    )
    connection_idle_ms: int = setting(
        "broker.connection.idle.ms",
        600_000,
        "Close a connection after this time without a request, or when a client takes this long"
        " to send a request or to read a response.",
        minimum=1_000,
    )
    connection_requests_max: int = setting(
        "broker.connection.requests.max",
        512,
        "Maximum number of unanswered requests per connection. Beyond it, the broker stops "
        "reading from the connection.",
        minimum=1,
    )
    request_bytes_max: int = setting(
        "broker.request.bytes.max",
        32 * MIB,
        "Maximum size of a request. A larger one closes its connection.",
        minimum=64 * 1024,
        maximum=2**31 - 1,
    )
    memory_bytes: int = setting(
        "broker.memory.bytes",
        512 * MIB,
        "Memory limit of the whole process. Memory settings that are not set are derived from it.",
        minimum=128 * MIB,
    )
    receive_pool_bytes: int = setting(
        "broker.receive.pool.bytes",
        8 * MIB,
        "Size of the pool of unused receive buffers for large requests.",
        minimum=0,
    )
    receiving_bytes_max: int = setting(
        "broker.receiving.bytes.max",
        24 * MIB,
        "Memory for partially received requests; small ones use at most half. Beyond it, the "
        "broker stops reading other large requests until memory is free. One request is always "
        "read.",
        minimum=64 * 1024,
    )
    stop_grace_ms: int = setting(
        "broker.stop.grace.ms",
        8_000,
        "After a stop signal, how long accepted requests may take to be committed and answered.",
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """Defaults of topics that are created without a configuration."""

    auto_create: bool = setting(
        "topics.auto.create", True, "Create a topic when a client requests one that does not exist."
    )
    default_partitions: int = setting(
        "topics.default.partitions",
        1,
        "Number of partitions of a topic that is created without a partition count.",
        minimum=1,
        maximum=100_000,
    )


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The HTTP port for health checks and metrics."""

    listen: str = setting(
        "http.listen",
        "127.0.0.1:9464",
        "host:port for /healthz, /readyz and /metrics. Port 0 selects a free port, and so does "
        "the default address if its port is in use. Empty: no HTTP port.",
    )
    connections_max: int = setting(
        "http.connections.max",
        64,
        "Maximum number of connections to the HTTP port. A new one then replaces the one that "
        "has been idle longest; if none is idle, it is closed.",
        minimum=1,
    )
    timeout_ms: int = setting(
        "http.timeout.ms",
        30_000,
        "Close an HTTP connection that takes this long to send a request or to read a response.",
        minimum=1,
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Log lines of a serving process, written to standard error."""

    level: str = setting(
        "log.level",
        "info",
        "Minimum level of the log lines.",
        choices=("debug", "info", "warning", "error"),
    )
    format: str = setting(
        "log.format",
        "text",
        "`text`: one line of text per event. `json`: one JSON object per line.",
        choices=("text", "json"),
    )
    repeat_ms: int = setting(
        "log.repeat.ms",
        10_000,
        "Log the same warning about clients at most once in this time, with a count.",
        minimum=0,
    )
