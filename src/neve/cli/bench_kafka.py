"""`neve bench produce`, `consume`, `latency` and `mock`: load for any Kafka-compatible broker."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from neve.bench.kafka import consume as consuming
from neve.bench.kafka import latency as probing
from neve.bench.kafka import mock as mocking
from neve.bench.kafka import produce as producing
from neve.cli import output
from neve.cli.connection import DEFAULT_FLAGS, BrokerFlags, explained
from neve.cli.output import UsageError

SECONDS_DEFAULT = 10.0
RECORDS_DEFAULT = 1000

JsonFlag = Annotated[
    bool, Parameter(negative="", help="Print one JSON document instead of lines of text.")
]
RecordsFlag = Annotated[int | None, Parameter(help="Number of records to send or read.")]
SecondsFlag = Annotated[float | None, Parameter(help="Duration in seconds.")]
ValueFlag = Annotated[int, Parameter(help="Bytes of each value.")]
AcksFlag = Annotated[Literal["0", "1", "all"], Parameter(help="Required acknowledgements.")]
TopicFlag = Annotated[
    str | None,
    Parameter(help="The topic, created if it does not exist. Default: a temporary topic."),
]


def produce(
    *,
    topic: TopicFlag = None,
    records: RecordsFlag = None,
    bytes: Annotated[str | None, Parameter(help="Amount of data, such as 1GB.")] = None,
    seconds: SecondsFlag = None,
    value_bytes: ValueFlag = 1024,
    acks: AcksFlag = "all",
    idempotent: Annotated[bool, Parameter(negative="", help="Use an idempotent producer.")] = False,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], Parameter(help="Compression of batches.")
    ] = "none",
    partitions: Annotated[int, Parameter(help="Number of partitions to write to.")] = 1,
    inflight: Annotated[int, Parameter(help="Maximum requests in flight.")] = 5,
    linger_ms: Annotated[float, Parameter(help="How long a batch waits for more records.")] = 5,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Measure produce throughput, up to the acknowledgement."""
    if sum(given is not None for given in (records, bytes, seconds)) > 1:
        raise UsageError("--records, --bytes and --seconds cannot be combined: choose one")
    for flag, given in (
        ("--records", records),
        ("--seconds", seconds),
        ("--value-bytes", value_bytes),
        ("--partitions", partitions),
        ("--inflight", inflight),
    ):
        _above_zero(flag, given)
    unbounded = records is None and bytes is None and seconds is None
    load = producing.Load(
        topic=topic,
        records=records,
        size=None if bytes is None else parse_bytes("--bytes", bytes),
        seconds=SECONDS_DEFAULT if unbounded else seconds,
        value_bytes=value_bytes,
        acks=acks,
        idempotent=idempotent,
        compression=compression,
        partitions=partitions,
        inflight=inflight,
        linger_ms=linger_ms,
    )
    with _load(broker) as (config, bar):
        result = producing.run(config, load, bar.show)
    return _ended(result, as_json=json)


def consume(
    *,
    topic: Annotated[str, Parameter(help="The topic to read from start to end.")],
    records: RecordsFlag = None,
    seconds: SecondsFlag = None,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Measure consume throughput, from the start of a topic."""
    _above_zero("--records", records)
    _above_zero("--seconds", seconds)
    reading = consuming.Reading(topic=topic, records=records, seconds=seconds)
    with _load(broker) as (config, bar):
        result = consuming.run(config, reading, bar.show)
    return _ended(result, as_json=json)


def latency(
    *,
    topic: TopicFlag = None,
    records: RecordsFlag = None,
    seconds: SecondsFlag = None,
    value_bytes: ValueFlag = 1024,
    acks: AcksFlag = "all",
    end_to_end: Annotated[
        bool, Parameter(negative="", help="Also measure until a consumer has received the record.")
    ] = False,
    json: JsonFlag = False,
    broker: BrokerFlags = DEFAULT_FLAGS,
) -> int:
    """Measure latency, with one record in flight."""
    _above_zero("--records", records)
    _above_zero("--seconds", seconds)
    _above_zero("--value-bytes", value_bytes)
    probe = probing.Probe(
        topic=topic,
        records=RECORDS_DEFAULT if records is None and seconds is None else records,
        seconds=seconds,
        value_bytes=value_bytes,
        acks=acks,
        end_to_end=end_to_end,
    )
    with _load(broker) as (config, bar):
        result = probing.run(config, probe, bar.show)
    return _ended(result, as_json=json)


def mock(*, brokers: Annotated[int, Parameter(help="Number of brokers.")] = 1) -> int:
    """Run librdkafka's mock cluster until Ctrl-C or SIGTERM. Prints its address."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with mocking.cluster(brokers) as address:
        print(address, flush=True)
        stopped.wait()
    return 0


@contextlib.contextmanager
def _load(broker: BrokerFlags) -> Iterator[tuple[dict[str, Any], output.Bar]]:
    from confluent_kafka import KafkaException

    with broker.connect() as connection:
        connection.metadata()  # raises if no broker responds
        try:
            with output.progress("records") as bar:
                yield connection.config(), bar
        except KafkaException as error:
            raise explained(error.args[0], connection.bootstrap) from None


def _ended(result: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        output.write_json(result)
    else:
        for name, value in result.items():
            if isinstance(value, dict):
                shown = ", ".join(f"{inner} {number}" for inner, number in value.items())
            else:
                shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            if shown:
                print(f"{name.replace('_', ' ')}: {shown}")
    if result["errors"]:
        why = "; ".join(result.get("error_reasons", [])) or "they are not in the topic"
        output.complain(f"{result['errors']} records were not delivered: {why}")
    return 1 if result["errors"] else 0


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY_UNITS = {"ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}


def parse_bytes(flag: str, text: str) -> int:
    """Parse a size such as 1000, 64MB or 1GiB."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([kmgt]i?)?b?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise UsageError(f"{flag} {text}: must be a size such as 1000, 64MB or 1GiB")
    unit = found[2] or ""
    return int(found[1]) * (_BINARY_UNITS[unit] if unit.endswith("i") else _UNITS[unit])


def _above_zero(flag: str, given: float | None) -> None:
    if given is not None and not 0 < given < float("inf"):
        raise UsageError(f"{flag} {given}: must be > 0")
