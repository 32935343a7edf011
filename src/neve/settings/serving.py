"""The settings of a serving process: its listeners, its limits, its logs."""

from __future__ import annotations

from dataclasses import dataclass

from neve.settings.declare import MIB, setting


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """Who a broker is, where it listens, and what its clients may take up."""

    store: str = setting(
        "broker.store", "./neve-data", "URL or folder of the bucket that the broker serves"
    )
    listen: str = setting(
        "broker.listen", "127.0.0.1:9092", "host:port for Kafka clients; port 0 takes a free one"
    )
    advertise: str = setting(
        "broker.advertise",
        "",
        "host:port that clients are told to connect to; empty: where the broker listens, or this "
        "machine's name if that is every address",
    )
    node_id: int = setting(
        "broker.node.id",
        1,
        "this broker's number; a second process with the same one ends the first",
        least=0,
        most=2**31 - 1,
    )
    rack: str = setting("broker.rack", "", "zone of this broker, as clients are told")
    connections_max: int = setting(
        "broker.connections.max",
        5_000,
        "client connections at once; beyond it, new ones are closed; at the start it is compared "
        "with the limit on open files, of which some are kept for the store and HTTP",
        least=1,
    )
    address_connections_max: int = setting(
        "broker.connections.per.address.max",
        2_500,
        "client connections at once from one address; behind a proxy or NAT all clients have one "
        "address: set it to broker.connections.max there",
        least=1,
    )
    connection_idle_ms: int = setting(
        "broker.connection.idle.ms",
        600_000,
        "a connection without a request for so long is closed, and so is one whose client takes "
        "so long over half a request or an unread answer",
        least=1_000,
    )
    connection_requests_max: int = setting(
        "broker.connection.requests.max",
        512,
        "unanswered requests of one connection; beyond it, it is not read",
        least=1,
    )
    request_bytes_max: int = setting(
        "broker.request.bytes.max",
        32 * MIB,
        "size of one request; a larger one closes its connection",
        least=64 * 1024,
        most=2**31 - 1,
    )
    memory_bytes: int = setting(
        "broker.memory.bytes",
        512 * MIB,
        "what the whole process may take up; the bounds that are not set each have their share",
        least=128 * MIB,
    )
    receive_pool_bytes: int = setting(
        "broker.receive.pool.bytes",
        8 * MIB,
        "receive buffers kept for the next large request while nobody uses them",
        least=0,
    )
    receiving_bytes_max: int = setting(
        "broker.receiving.bytes.max",
        24 * MIB,
        "requests that have begun to come in and are not whole, up to half of it small ones; past "
        "it, other large ones are not read until there is room; one always passes",
        least=64 * 1024,
    )
    stop_grace_ms: int = setting(
        "broker.stop.grace.ms",
        8_000,
        "after a signal, how long what was accepted may take to be committed and answered",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """What a topic is when nobody says more than its name."""

    auto_create: bool = setting(
        "topics.auto.create", True, "create a topic when a client asks for one that is not there"
    )
    default_partitions: int = setting(
        "topics.default.partitions",
        1,
        "partitions of a topic that is created without a number of them",
        least=1,
        most=100_000,
    )


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The port for health and metrics."""

    listen: str = setting(
        "http.listen",
        "127.0.0.1:9464",
        "host:port for /healthz, /readyz and /metrics; port 0 takes a free one, as does the "
        "default where another process has it; empty: none",
    )
    connections_max: int = setting(
        "http.connections.max",
        64,
        "connections to it at once; beyond it, new ones are closed",
        least=1,
    )
    timeout_ms: int = setting(
        "http.timeout.ms",
        30_000,
        "a connection to it that sends no whole request, or takes no answer, for so long is closed",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What a serving process writes to standard error."""

    level: str = setting(
        "log.level",
        "info",
        "least severe lines that are written",
        choices=("debug", "info", "warning", "error"),
    )
    format: str = setting(
        "log.format",
        "text",
        "one line of text, or one JSON object a line",
        choices=("text", "json"),
    )
    repeat_ms: int = setting(
        "log.repeat.ms",
        10_000,
        "the same complaint about clients is written once in so long, with a count",
        least=0,
    )
