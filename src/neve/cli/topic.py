"""`neve topic …`: topics of any Kafka-compatible broker, and their records."""

from __future__ import annotations

import functools
import os
from typing import Annotated, Literal

from cyclopts import App, Parameter

from neve import runtime
from neve.cli import consume as consuming
from neve.cli import consume_member, input_format, record_format, topic_admin
from neve.cli import produce as producing
from neve.cli.connection import DEFAULT_FLAGS, BrokerFlags, assignments
from neve.cli.name_validation import name_validator
from neve.cli.offsets import parse_span
from neve.cli.output import STANDARD_INPUT, UsageError
from neve.cli.record_json import record_line

Topic = Annotated[str, Parameter(help="The topic.", validator=name_validator("topic"))]
Topics = Annotated[
    list[str], Parameter(help="One or more topics.", validator=name_validator("topic"))
]
JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]
GroupFlag = Annotated[
    str | None,
    Parameter(
        name=["--group", "-g"],
        help="Read as a member of this group.",
        validator=name_validator("group"),
    ),
]
ConfigFlags = Annotated[
    list[str] | None,
    Parameter(
        name=["--config", "-c"], negative="", help="A topic config as key=value. Repeatable."
    ),
]

PARTITIONS_MAX, REPLICAS_MAX = 100_000, 10_000
"""librdkafka's maximum. Brokers may accept less."""

app = App(name="topic", help="Create, describe, alter, delete, write and read topics.")


@app.command
def create(
    names: Topics,
    /,
    *,
    partitions: Annotated[
        int | None, Parameter(name=["--partitions", "-p"], help="The broker decides otherwise.")
    ] = None,
    replicas: Annotated[
        int | None, Parameter(name=["--replicas", "-r"], help="The broker decides otherwise.")
    ] = None,
    config: ConfigFlags = None,
    if_not_exists: Annotated[
        bool, Parameter(negative="", help="Do not fail if the topic exists.")
    ] = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Create topics."""
    _between("--partitions", partitions, 1, PARTITIONS_MAX)
    _between("--replicas", replicas, 1, REPLICAS_MAX)
    configs = assignments("--config", config or [])
    with broker.connect() as connection:
        return topic_admin.create(
            connection,
            _distinct(names),
            partitions=partitions,
            replicas=replicas,
            configs=configs,
            if_not_exists=if_not_exists,
        )


@app.command(name="list")
def list_(
    *,
    internal: Annotated[
        bool, Parameter(negative="", help="Include topics whose names begin with __.")
    ] = False,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """List topics with the number of their partitions."""
    with broker.connect() as connection:
        return topic_admin.show_all(connection, internal=internal, as_json=json)


@app.command
def describe(
    name: Topic,
    /,
    *,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Show a topic's id, its partitions with leaders and offsets, and configs set for it."""
    with broker.connect() as connection:
        return topic_admin.describe(connection, name, as_json=json)


@app.command
def alter(
    name: Topic,
    /,
    *,
    partitions: Annotated[
        int | None,
        Parameter(name=["--partitions", "-p"], help="New number of partitions; it can only grow."),
    ] = None,
    config: ConfigFlags = None,
    delete_config: Annotated[
        list[str] | None,
        Parameter(negative="", help="Reset a config to its default. Repeatable."),
    ] = None,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Add partitions to a topic, and set or reset its configs."""
    _between("--partitions", partitions, 1, PARTITIONS_MAX)
    configs = assignments("--config", config or [])
    removed = delete_config or []
    if partitions is None and not configs and not removed:
        raise UsageError("nothing to change: give --partitions, --config or --delete-config")
    if both := sorted(set(configs) & set(removed)):
        raise UsageError(f"{both[0]} is both set and deleted: choose one")
    with broker.connect() as connection:
        return topic_admin.alter(
            connection, name, partitions=partitions, configs=configs, removed=removed
        )


@app.command
def delete(
    names: Topics,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="", help="Do not ask.")] = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Delete topics with all their records."""
    with broker.connect() as connection:
        return topic_admin.delete(connection, _distinct(names), confirmed=yes)


@app.command
def produce(
    topic: Topic,
    /,
    *,
    key: Annotated[
        str | None, Parameter(name=["--key", "-k"], help="Key of records without one.")
    ] = None,
    header: Annotated[
        list[str] | None,
        Parameter(name=["--header", "-H"], negative="", help="A header as key=value. Repeatable."),
    ] = None,
    partition: Annotated[
        int | None, Parameter(name=["--partition", "-p"], help="Send to this partition.")
    ] = None,
    format: Annotated[
        str,
        Parameter(
            name=["--format", "-f"],
            help=r"Format of a record of the input, such as %k\t%v\n; or `json`.",
        ),
    ] = "%v\\n",
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], Parameter(help="Compression of batches.")
    ] = "none",
    acks: Annotated[Literal["0", "1", "all"], Parameter(help="Required acknowledgements.")] = "all",
    null: Annotated[
        bool,
        Parameter(
            name=["--null", "-Z"], negative="", help="Send empty values as null: tombstones."
        ),
    ] = False,
    allow_auto_topic_creation: Annotated[
        bool, Parameter(negative="", help="Create the topic if it does not exist.")
    ] = False,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    r"""Send records from standard input, by default one per line.

    Fields: %k key, %v value, %p partition, %d timestamp in milliseconds, %K and %V lengths of key
    and value; %v{hex}, %v{base64}, %v{json}. Escapes: \n \t \r \0 \\\\ \xNN.
    """
    _at_least("--partition", partition, 0)
    headers = [_header(each) for each in header or []]
    rows = input_format.rows(format, functools.partial(os.read, STANDARD_INPUT))
    sending = producing.Sending(
        topic=topic,
        key=None if key is None else key.encode(),
        headers=headers,
        partition=partition,
        tombstones=null,
        compression=compression,
        acks=acks,
        auto_create=allow_auto_topic_creation,
    )
    with broker.connect() as connection:
        return producing.produce(connection, sending, rows, as_json=json)


@app.command
def consume(
    topics: Topics,
    /,
    *,
    offsets: Annotated[
        str,
        Parameter(
            name=["--offsets", "-o"],
            allow_leading_hyphen=True,
            help="start, end, 47, +2, -3, 10:20, @-1h, @2026-01-01, @-2h:-1h (docs/users/cli.md).",
        ),
    ] = "start",
    partitions: Annotated[
        str | None,
        Parameter(name=["--partitions", "-p"], help="Only these partitions, such as 0,2,5."),
    ] = None,
    count: Annotated[
        int | None, Parameter(name=["--count", "-n"], help="Maximum number of records.")
    ] = None,
    group: GroupFlag = None,
    format: Annotated[
        str | None,
        Parameter(name=["--format", "-f"], help=r"Format of a record. Default: %v\n."),
    ] = None,
    json: Annotated[bool, Parameter(negative="", help="Write one JSON object per line.")] = False,
    follow: Annotated[
        bool, Parameter(negative="", help="Continue with new records as they arrive.")
    ] = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    r"""Write records to standard output, up to the current end of each partition.

    Fields: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %d timestamp (%d{iso}),
    %T %K %V lengths, %H number of headers; %v{hex}, %v{base64}, %v{json}, %h{%k=%v,}. Escapes:
    \n \t \r \0 \\\\ \xNN.
    """
    if json and format is not None:
        raise UsageError("--json and --format cannot be combined: choose one")
    _at_least("--count", count, 0)
    wanted = consuming.ConsumeSelection(
        topics=_distinct(topics),
        span=parse_span(offsets, runtime.now_ms()),
        partitions=None if partitions is None else numbers("--partitions", partitions),
        count=count,
        follow=follow,
    )
    render = (
        (lambda record: record_line(record, "text"))
        if json
        else record_format.compile_format("%v\\n" if format is None else format)
    )
    with broker.connect() as connection:
        if group is not None:
            return consume_member.consume(connection, wanted, group, render)
        return consuming.consume(connection, wanted, render)


def numbers(flag: str, text: str) -> list[int]:
    """Parse comma-separated partition numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"{flag} {text}: must be partition numbers such as 0,2,5")
    return sorted({int(part) for part in parts})


def _header(text: str) -> tuple[str, bytes]:
    key, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"--header {text}: must be key=value")
    return key, value.encode()


def _distinct(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _at_least(flag: str, given: int | None, least: int) -> None:
    if given is not None and given < least:
        raise UsageError(f"{flag} {given}: must be >= {least}")


def _between(flag: str, given: int | None, least: int, most: int) -> None:
    if given is not None and not least <= given <= most:
        raise UsageError(f"{flag} {given}: must be from {least} to {most}")
