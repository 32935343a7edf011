"""How commands reach a broker: flags, clients, and errors that say what to do.

Everything goes over Kafka's protocol with confluent-kafka, so it works against any broker that
speaks it. Looking something up never creates a topic. A broker that does not answer is told within
`--timeout` seconds, a refused connection at once; no wait hides Ctrl-C for more than a second or
two. librdkafka's own log is silent unless `-X debug=…` or `-X log_level=…` asks for it.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from neve import runtime
from neve.cli.output import UsageError
from neve.errors import NeveError

BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
PORT_MAX = 2**16 - 1
FIRST_WAIT_SECONDS = 0.5
"""The first attempt to reach a broker; each next one may take twice as long."""

LOOKUP_GROUP = "neve-command"
"""librdkafka's consumers must name a group, even where they never join one."""


class BrokerError(NeveError):
    """A broker refused something, or cannot be reached. `code` is librdkafka's name for it."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@Parameter(name="*")
@dataclass(frozen=True)
class BrokerFlags:
    """The flags of every command that speaks to a broker."""

    bootstrap: Annotated[
        str,
        Parameter(
            env_var="NEVE_BOOTSTRAP", help="Where a broker listens: HOST:PORT, or several by comma."
        ),
    ] = BOOTSTRAP_DEFAULT
    properties: Annotated[
        list[str],
        Parameter(
            name="-X", negative="", help="A property of librdkafka as key=value; may be repeated."
        ),
    ] = field(default_factory=list)
    timeout: Annotated[
        float, Parameter(help="Seconds after which a broker that does not answer is given up.")
    ] = 10.0

    def connect(self) -> Connection:
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise UsageError(f"--timeout {self.timeout}: give seconds, more than 0")
        ports = [place.rpartition(":")[2] for place in self.bootstrap.split(",") if place.strip()]
        if not ports or any(port.isdigit() and not 0 < int(port) <= PORT_MAX for port in ports):
            raise UsageError(
                f"--bootstrap {self.bootstrap!r}: write HOST:PORT, with a port from 1 to "
                f"{PORT_MAX}, or several by comma"
            )
        given = assignments("-X", self.properties)
        return Connection({"bootstrap.servers": self.bootstrap, **given}, self.timeout)


DEFAULT_FLAGS = BrokerFlags()


def assignments(flag: str, given: Iterable[str]) -> dict[str, str]:
    """Repeated `key=value` flags as a dictionary."""
    found: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        key = key.strip()
        if not separator or not key:
            raise UsageError(f"{flag} {text}: write key=value")
        if key in found:
            raise UsageError(f"{flag} {key} is given twice")
        found[key] = value
    return found


class Connection:
    """Clients of one cluster, made when they are needed. Close it, or use it as `with`."""

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
        """What -X says of a property."""
        return self._config.get(name)

    def config(self, **properties: object) -> dict[str, Any]:
        """What a client is made with: dots are written as `__` in `properties`; -X is stronger."""
        quiet = {} if "debug" in self._config else {"log_level": 0}
        named = {name.replace("__", "."): value for name, value in properties.items()}
        return {**quiet, "error_cb": self._note, **named, **self._config}

    def _note(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # the one before it says why
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
        """A consumer that reads nothing: unlike other clients it creates no topic it asks for."""
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

    # --- asking

    def metadata(self, topic: str | None = None) -> Any:
        """The cluster's brokers and topics, or one topic's; told clearly where nobody answers."""
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
            self.lookup.poll(0)  # librdkafka tells what is wrong here
            left = given_up_at - runtime.monotonic()
            if left <= 0 or self._hopeless():
                raise self.unreachable()
            wait = min(2 * wait, left)

    def _hopeless(self) -> bool:
        return any(
            sign in self.trouble for sign in ("refused", "Failed to resolve", "uthentication")
        )

    def unreachable(self) -> BrokerError:
        why = self.trouble or f"nothing came within {self.timeout_seconds:g} s"
        return BrokerError(
            f"no broker answers at {self.bootstrap} ({why}): is it running? Start one with "
            "`neve serve`, or say where it listens with --bootstrap HOST:PORT",
            "_TRANSPORT",
        )

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic that exists."""
        found = self.metadata(topic).topics.get(topic)
        if found is None or found.error is not None or not found.partitions:
            if found is not None and found.error is not None:
                raise explained(found.error, f"topic {topic}")
            raise BrokerError(f"topic {topic} {_UNKNOWN_TOPIC}", "UNKNOWN_TOPIC_OR_PART")
        return sorted(found.partitions)

    def result(self, future: Any, subject: str) -> Any:
        """What an administrative call came to; a refusal names its subject."""
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
        """First and next offset of each partition; with `readable`, of what a consumer gets.

        Unless told otherwise, a consumer goes no further than a transaction that is open.
        """
        from confluent_kafka.admin import OffsetSpec

        low = self._offsets_at(places, OffsetSpec.earliest())
        committed = readable and self.given("isolation.level") != "read_uncommitted"
        high = self._offsets_at(places, OffsetSpec.latest(), committed=committed)
        return {place: Watermarks(low[place], high[place]) for place in places}

    def offsets_at(
        self, places: Sequence[tuple[str, int]], timestamp_ms: int
    ) -> dict[tuple[str, int], int | None]:
        """The first record of each partition that is not older; None where all are."""
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
    """What a partition holds: low up to, not including, high."""

    low: int
    high: int


_UNKNOWN_TOPIC = "does not exist: `neve topic list` shows which there are"

_HINTS = {
    "UNKNOWN_TOPIC_OR_PART": _UNKNOWN_TOPIC,
    "_UNKNOWN_TOPIC": _UNKNOWN_TOPIC,
    "_UNKNOWN_PARTITION": "does not exist: `neve topic describe` shows the partitions",
    "TOPIC_ALREADY_EXISTS": "exists already: --if-not-exists leaves it as it is",
    "GROUP_ID_NOT_FOUND": "does not exist: `neve group list` shows which there are",
    "NON_EMPTY_GROUP": "still has members: stop them first",
    "UNKNOWN_MEMBER_ID": "still has members: stop them first",
    "REBALANCE_IN_PROGRESS": "still has members: stop them first",
    "_UNSUPPORTED_FEATURE": "this broker does not offer what is asked",
    "UNSUPPORTED_VERSION": "this broker does not offer what is asked",
    "_TIMED_OUT": "the broker did not answer in time: try again, or raise --timeout",
    "REQUEST_TIMED_OUT": "the broker could not do it in time: try again",
    "_TRANSPORT": "the connection to the broker broke: try again",
}


# For what the library says by itself; a broker that gives its own reason tells more.
_HINTS_FOR_WORDS = {
    "Invalid topic": "cannot be: a name has 1 to 249 of letters, digits, '.', '_' and '-'",
}


def explained(error: Any, subject: str) -> BrokerError:
    """A client's error as ours: what it was about, what happened, what to do."""
    hint = _HINTS.get(error.name()) or _HINTS_FOR_WORDS.get(plain(error))
    if hint is None:
        return BrokerError(f"{subject}: {plain(error)}", error.name())
    joiner = " " if hint.split()[0] in ("does", "exists", "still", "cannot") else ": "
    return BrokerError(f"{subject}{joiner}{hint}", error.name())


def plain(error: Any) -> str:
    """A client's error without the name of its layer."""
    return str(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
