"""Connections of commands to a broker: flags, clients and errors.

Commands use Kafka's protocol through confluent-kafka, so they work with any Kafka-compatible
broker. Lookups never create a topic. If a broker does not respond, commands fail after `--timeout`
seconds; if it refuses the connection, immediately. Ctrl-C takes effect within a second or two.
librdkafka's log is off unless `-X debug=…` or `-X log_level=…` enables it.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from neve import runtime
from neve.cli.output import UsageError
from neve.errors import NeveError

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
PORT_MAX = 2**16 - 1
FIRST_WAIT_SECONDS = 0.5
"""Timeout of the first attempt to reach a broker. It doubles with every further attempt."""

LOOKUP_GROUP = "neve-command"
"""librdkafka's consumers need a group id even if they never join a group."""


class BrokerError(NeveError):
    """A broker rejected a request or is unreachable. `code` is librdkafka's name of the error."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


def unknown_partition(topic: str, partition: int, known: Collection[int]) -> BrokerError:
    """Return the error for a partition that the topic does not have."""
    return BrokerError(
        f"partition {partition} does not exist in topic {topic}; "
        f"valid partitions: 0-{len(known) - 1}"
    )


@Parameter(name="*")
@dataclass(frozen=True)
class BrokerFlags:
    """The flags of all commands that connect to a broker."""

    bootstrap: Annotated[
        str,
        Parameter(env_var="NEVE_BOOTSTRAP", help="Broker addresses: HOST:PORT, comma-separated."),
    ] = BOOTSTRAP_DEFAULT
    properties: Annotated[
        list[str],
        Parameter(name="-X", negative="", help="A librdkafka property as key=value. Repeatable."),
    ] = field(default_factory=list)
    timeout: Annotated[
        float, Parameter(help="Timeout in seconds for a broker that does not respond.")
    ] = 10.0

    def connect(self) -> Connection:
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise UsageError(f"--timeout {self.timeout}: must be > 0 seconds")
        ports = [place.rpartition(":")[2] for place in self.bootstrap.split(",") if place.strip()]
        if not ports or any(port.isdigit() and not 0 < int(port) <= PORT_MAX for port in ports):
            raise UsageError(
                f"--bootstrap {self.bootstrap!r}: must be HOST:PORT with a port from 1 to "
                f"{PORT_MAX}; separate several with commas"
            )
        given = assignments("-X", self.properties)
        return Connection({"bootstrap.servers": self.bootstrap, **given}, self.timeout)


DEFAULT_FLAGS = BrokerFlags()


def assignments(flag: str, given: Iterable[str]) -> dict[str, str]:
    """Parse repeated `key=value` flags into a dictionary."""
    found: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        key = key.strip()
        if not separator or not key:
            raise UsageError(f"{flag} {text}: must be key=value")
        if key in found:
            raise UsageError(f"{flag} {key} is set twice: remove one")
        found[key] = value
    return found


class Connection:
    """Clients of one cluster, created on demand. Close it, or use it in a `with` statement."""

    def __init__(self, config: Mapping[str, str], timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self.trouble = ""
        self._config = dict(config)
        self._admin: Any = None
        self._lookup: Any = None

    @property
    def bootstrap(self) -> str:
        return self._config["bootstrap.servers"]

    def given(self, name: str) -> str | None:
        """Return the value that -X gives a property, if any."""
        return self._config.get(name)

    def config(self, **properties: object) -> dict[str, Any]:
        """Return a client's configuration. `__` in `properties` stands for a dot; -X overrides."""
        quiet = {} if "debug" in self._config else {"log_level": 0}
        named = {name.replace("__", "."): value for name, value in properties.items()}
        return {**quiet, "error_cb": self._note, **named, **self._config}

    def _note(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # the previous error has the cause
            self.trouble = re.sub(r" \(after \d+ms in state .*\)", "", error.str())

    # --- clients

    @property
    def admin(self) -> Any:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = self._made(AdminClient, self.config())
        return self._admin

    @property
    def lookup(self) -> Any:
        """A consumer for lookups: unlike other clients, it does not auto-create topics."""
        if self._lookup is None:
            from confluent_kafka import Consumer

            self._lookup = self._made(Consumer, self.config(group__id=LOOKUP_GROUP))
        return self._lookup

    @contextlib.contextmanager
    def consumer(self, **properties: object) -> Iterator[Any]:
        from confluent_kafka import Consumer

        client = self._made(Consumer, self.config(**properties))
        try:
            yield client
        finally:
            client.close()

    def producer(self, **properties: object) -> Any:
        from confluent_kafka import Producer

        return self._made(Producer, self.config(**properties))

    def _made(self, kind: Any, config: dict[str, Any]) -> Any:
        from confluent_kafka import KafkaException

        try:
            return kind(config)
        except KafkaException as error:
            raise UsageError(f"-X: {error.args[0].str()}") from None

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.close()
        self._admin = self._lookup = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- lookups

    def metadata(self, topic: str | None = None) -> Any:
        """Return the cluster's brokers and topics, or one topic's. Raises if no broker responds."""
        from confluent_kafka import KafkaException

        given_up_at = runtime.monotonic() + self.timeout_seconds
        wait = min(FIRST_WAIT_SECONDS, self.timeout_seconds)
        while True:
            try:
                return self.lookup.list_topics(*([topic] if topic else []), timeout=wait)
            except KafkaException as error:
                reason = error.args[0]
            if reason.name() not in ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"):
                raise explained(reason, self.bootstrap)
            self.lookup.poll(0)  # runs librdkafka's error callback
            left = given_up_at - runtime.monotonic()
            if left <= 0 or self._hopeless():
                raise self.unreachable()
            wait = min(2 * wait, left)

    def _hopeless(self) -> bool:
        return any(
            sign in self.trouble for sign in ("refused", "Failed to resolve", "uthentication")
        )

    def unreachable(self) -> BrokerError:
        why = self.trouble or f"timed out after {self.timeout_seconds:g} s"
        return BrokerError(
            f"no broker responds at {self.bootstrap} ({why}): is it running? Start one with "
            "`neve serve`, or give its address with --bootstrap HOST:PORT",
            "_TRANSPORT",
        )

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises BrokerError if it does not exist."""
        found = self.metadata(topic).topics.get(topic)
        if found is None or found.error is not None or not found.partitions:
            if found is not None and found.error is not None:
                raise explained(found.error, f"topic {topic}")
            raise BrokerError(f"topic {topic} {_UNKNOWN_TOPIC}", "UNKNOWN_TOPIC_OR_PART")
        return sorted(found.partitions)

    def result(self, future: Any, subject: str) -> Any:
        """Return the result of an admin call. Raises BrokerError, which names the subject."""
        from confluent_kafka import KafkaException

        try:
            return future.result()
        except KafkaException as error:
            raise explained(error.args[0], subject) from None
        except (ValueError, TypeError) as error:
            raise BrokerError(f"{subject}: {error}") from None

    def watermarks(
        self, places: Sequence[tuple[str, int]], *, readable: bool = False
    ) -> dict[tuple[str, int], Watermarks]:
        """Return the start and end offset of each partition.

        With `readable`, the end is the last stable offset: by default a consumer stops at an open
        transaction.
        """
        from confluent_kafka.admin import OffsetSpec

        low = self._offsets_at(places, OffsetSpec.earliest())
        committed = readable and self.given("isolation.level") != "read_uncommitted"
        high = self._offsets_at(places, OffsetSpec.latest(), committed=committed)
        return {place: Watermarks(low[place], high[place]) for place in places}

    def offsets_at(
        self, places: Sequence[tuple[str, int]], timestamp_ms: int
    ) -> dict[tuple[str, int], int | None]:
        """Return each partition's first offset at or after the timestamp; None if there is none."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets_at(places, OffsetSpec.for_timestamp(timestamp_ms))
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def _offsets_at(
        self, places: Sequence[tuple[str, int]], spec: Any, *, committed: bool = False
    ) -> dict[Any, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        if not places:
            return {}
        asked = {TopicPartition(*place): spec for place in places}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self.admin.list_offsets(
            asked, isolation_level=level, request_timeout=self.timeout_seconds
        )
        return {
            (place.topic, place.partition): self.result(
                future, f"offsets of {place.topic}-{place.partition}"
            ).offset
            for place, future in futures.items()
        }


@dataclass(frozen=True)
class Watermarks:
    """The offsets of a partition, from low up to but excluding high."""

    low: int
    high: int


_UNKNOWN_TOPIC = "does not exist: `neve topic list` lists the topics"

_HINTS = {
    "UNKNOWN_TOPIC_OR_PART": _UNKNOWN_TOPIC,
    "_UNKNOWN_TOPIC": _UNKNOWN_TOPIC,
    "_UNKNOWN_PARTITION": "does not exist: `neve topic describe` lists the partitions",
    "TOPIC_ALREADY_EXISTS": "already exists: use --if-not-exists to ignore this",
    "GROUP_ID_NOT_FOUND": "does not exist: `neve group list` lists the groups",
    "NON_EMPTY_GROUP": "still has members: stop them first",
    "UNKNOWN_MEMBER_ID": "still has members: stop them first",
    "REBALANCE_IN_PROGRESS": "still has members: stop them first",
    "_UNSUPPORTED_FEATURE": "this broker does not support the request",
    "UNSUPPORTED_VERSION": "this broker does not support the request",
    "_TIMED_OUT": "the broker did not respond in time: try again, or raise --timeout",
    "REQUEST_TIMED_OUT": "the request timed out in the broker: try again",
    "_TRANSPORT": "the connection to the broker failed: try again",
}


# For errors of librdkafka itself. A broker's own reason has more detail.
_HINTS_FOR_WORDS = {
    "Invalid topic": "invalid name: use 1 to 249 letters, digits, '.', '_' and '-'",
}


def explained(error: Any, subject: str) -> BrokerError:
    """Convert a client's error: the subject, what happened and what to do."""
    hint = _HINTS.get(error.name()) or _HINTS_FOR_WORDS.get(plain(error))
    if hint is None:
        return BrokerError(f"{subject}: {plain(error)}", error.name())
    joiner = " " if hint.split()[0] in ("does", "already", "still") else ": "
    return BrokerError(f"{subject}{joiner}{hint}", error.name())


def plain(error: Any) -> str:
    """Return a client's error text without the name of its layer."""
    return str(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
