"""Implementation of `neve topic create`, `list`, `describe`, `alter` and `delete`.

With several names, each is processed independently. If one fails, the command prints the error,
continues with the others, and exits with 1.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neve import runtime
from neve.cli import output
from neve.cli.connection import BrokerError, Connection
from neve.cli.output import UsageError
from neve.errors import NeveError

INTERNAL_PREFIX = "__"
BROKER_DECIDES = -1
KNOWN_SECONDS_MAX, KNOWN_WAIT_SECONDS = 5.0, 0.05
"""How long a change may take to reach a broker, and how often the command polls for it."""

CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker's file",
    5: "default",
}
"""Kafka's numbers for the source of a config value."""

KAFKA_BASE64 = str.maketrans("+/", "-_")
"""Kafka writes ids in URL-safe base64, librdkafka in standard base64."""


class NotDoneError(NeveError):
    """The user did not confirm."""


def create(
    connection: Connection,
    names: Sequence[str],
    *,
    partitions: int | None,
    replicas: int | None,
    configs: Mapping[str, str],
    if_not_exists: bool,
) -> int:
    """Create topics. Returns the exit code: 1 if one could not be created."""
    from confluent_kafka.admin import NewTopic

    connection.metadata()
    wanted = [
        NewTopic(
            name,
            num_partitions=BROKER_DECIDES if partitions is None else partitions,
            replication_factor=BROKER_DECIDES if replicas is None else replicas,
            config=dict(configs),
        )
        for name in names
    ]
    futures = connection.admin.create_topics(wanted, request_timeout=connection.timeout_seconds)

    def created(name: str) -> None:
        _await_partitions(connection, name, lambda count: count > 0)
        print(f"created {name}")

    def left_as_it_is(name: str, error: BrokerError) -> bool:
        if not (if_not_exists and error.code == "TOPIC_ALREADY_EXISTS"):
            return False
        print(f"{name} already exists")
        return True

    return _each(connection, futures, created, left_as_it_is)


def delete(connection: Connection, names: Sequence[str], *, confirmed: bool) -> int:
    """Delete topics with all their records. Returns the exit code: 1 if one failed."""
    connection.metadata()
    if not confirmed:
        _confirm(names)
    futures = connection.admin.delete_topics(
        list(names), request_timeout=connection.timeout_seconds
    )

    def deleted(name: str) -> None:
        _await_partitions(connection, name, lambda count: count == 0)
        print(f"deleted {name}")

    return _each(connection, futures, deleted, lambda *_: False)


def _each(
    connection: Connection,
    futures: Mapping[str, Any],
    done: Callable[[str], None],
    forgiven: Callable[[str, BrokerError], bool],
) -> int:
    failed = 0
    for name, future in futures.items():
        try:
            connection.result(future, f"topic {name}")
        except BrokerError as error:
            if not forgiven(name, error):
                output.complain(error)
                failed = 1
        else:
            done(name)
    return failed


def _await_partitions(connection: Connection, name: str, known: Callable[[int], bool]) -> None:
    """Wait until the broker knows of a change, so that the next command sees it.

    Kafka's controller makes the change, and brokers learn of it a moment later.
    """
    given_up_at = runtime.monotonic() + KNOWN_SECONDS_MAX
    with contextlib.suppress(BrokerError):  # the change itself has succeeded
        while runtime.monotonic() < given_up_at:
            found = connection.metadata(name).topics.get(name)
            if known(0 if found is None or found.error is not None else len(found.partitions)):
                return
            runtime.run(runtime.sleep(KNOWN_WAIT_SECONDS))


def _confirm(names: Sequence[str]) -> None:
    if not os.isatty(output.STANDARD_INPUT):
        raise UsageError("cannot ask for confirmation without a terminal: add --yes")
    try:
        answer = input(f"Delete {', '.join(names)} with all records? [y/N] ")
    except EOFError:  # Ctrl-D means no
        answer = ""
        print()
    if answer.strip().lower() not in ("y", "yes"):
        raise NotDoneError("nothing was deleted")


def alter(
    connection: Connection,
    name: str,
    *,
    partitions: int | None,
    configs: Mapping[str, str],
    removed: Sequence[str],
) -> int:
    """Add partitions, set and reset configs."""
    before = connection.partitions(name)
    if partitions is not None:
        _grow(connection, name, len(before), partitions)
    if configs or removed:
        _configure(connection, name, configs, removed)
    return 0


def _grow(connection: Connection, name: str, before: int, wanted: int) -> None:
    from confluent_kafka.admin import NewPartitions

    if wanted < before:
        raise BrokerError(
            f"topic {name} has {before} partitions: the number cannot shrink to {wanted}"
        )
    if wanted == before:
        print(f"{name} already has {wanted} partitions")
        return
    futures = connection.admin.create_partitions(
        [NewPartitions(name, wanted)], request_timeout=connection.timeout_seconds
    )
    connection.result(futures[name], f"topic {name}")
    _await_partitions(connection, name, lambda count: count >= wanted)
    print(f"{name}: partitions increased from {before} to {wanted}")


def _configure(
    connection: Connection, name: str, configs: Mapping[str, str], removed: Sequence[str]
) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    changes += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removed
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    futures = connection.admin.incremental_alter_configs(
        [resource], request_timeout=connection.timeout_seconds
    )
    for future in futures.values():
        connection.result(future, f"topic {name}")
    for key, value in configs.items():
        print(f"{name}: {key} set to {value}")
    for key in removed:
        print(f"{name}: {key} reset to its default")


def show_all(connection: Connection, *, internal: bool, as_json: bool) -> int:
    """List topics. Returns the exit code: 1 if one of them has an error."""
    found = connection.metadata()
    topics = [
        topic
        for name, topic in sorted(found.topics.items())
        if internal or not name.startswith(INTERNAL_PREFIX)
    ]
    broken = [topic for topic in topics if topic.error is not None]
    for topic in broken:
        output.complain(f"topic {topic.topic}: {topic.error.str()}")
    rows = [(topic.topic, len(topic.partitions), _replicas(topic)) for topic in topics]
    if as_json:
        titles = ("name", "partitions", "replicas")
        output.write_json([dict(zip(titles, row, strict=True)) for row in rows])
    else:
        output.print_table(("topic", "partitions", "replicas"), rows)
    return 1 if broken else 0


def _replicas(topic: Any) -> int:
    return max((len(each.replicas) for each in topic.partitions.values()), default=0)


# --- describe


def describe(connection: Connection, name: str, *, as_json: bool) -> int:
    """Show one topic: id, partitions with leader and offsets, and configs that were changed."""
    document = described(connection, name)
    if as_json:
        output.write_json(document)
    else:
        _print_topic(document)
    return 0


def described(connection: Connection, name: str) -> dict[str, Any]:
    """Return one topic as a JSON document."""
    from confluent_kafka import TopicCollection

    connection.partitions(name)  # raises if the topic does not exist
    seconds = connection.timeout_seconds
    futures = connection.admin.describe_topics(TopicCollection([name]), request_timeout=seconds)
    topic = connection.result(futures[name], f"topic {name}")
    marks = connection.watermarks([(name, each.id) for each in topic.partitions])
    return {
        "name": name,
        "id": str(topic.topic_id).translate(KAFKA_BASE64),
        "internal": bool(topic.is_internal),
        "partitions": [
            {
                "partition": each.id,
                "leader": None if each.leader is None else each.leader.id,
                "replicas": [node.id for node in each.replicas],
                "in_sync": [node.id for node in each.isr],
                "start": marks[name, each.id].low,
                "end": marks[name, each.id].high,
            }
            for each in sorted(topic.partitions, key=lambda each: each.id)
        ],
        "configs": _configs(connection, name),
    }


def _configs(connection: Connection, name: str) -> list[dict[str, Any]]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    asked = [ConfigResource(ResourceType.TOPIC, name)]
    futures = connection.admin.describe_configs(asked, request_timeout=connection.timeout_seconds)
    found = {}
    for future in futures.values():
        found.update(connection.result(future, f"configs of topic {name}"))
    return [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": CONFIG_SOURCES.get(_number(entry.source), "unknown"),
        }
        for _, entry in sorted(found.items())
        if not entry.is_default and CONFIG_SOURCES.get(_number(entry.source)) != "default"
    ]


def _number(source: Any) -> int:
    return int(getattr(source, "value", source))


def _print_topic(document: Mapping[str, Any]) -> None:
    internal = ", internal" if document["internal"] else ""
    print(f"{document['name']}: id {document['id']}{internal}")
    print()
    output.print_table(
        ("partition", "leader", "replicas", "in sync", "start", "end", "records"),
        [
            (
                row["partition"],
                "-" if row["leader"] is None else row["leader"],
                ",".join(map(str, row["replicas"])),
                ",".join(map(str, row["in_sync"])),
                row["start"],
                row["end"],
                row["end"] - row["start"],
            )
            for row in document["partitions"]
        ],
    )
    if document["configs"]:
        print()
        output.print_table(
            ("config", "value", "from"),
            [(row["name"], row["value"], row["source"]) for row in document["configs"]],
        )
