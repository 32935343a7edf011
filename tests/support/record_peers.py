"""The record decoders and builders of other clients, each behind one interface, for comparison."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import cramjam
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaC
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaCBuilder
from aiokafka.record.default_records import (
    _DefaultRecordBatchBuilderPy as AiokafkaPythonBuilder,
)
from aiokafka.record.default_records import _DefaultRecordBatchPy as AiokafkaPython

from neve.records.reference import Record

with warnings.catch_warnings():
    # kafka-python uses calls of the standard library that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka.record.default_records import DefaultRecordBatch as KafkaPython
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

if kafka.codec.snappy is None:
    # kafka-python wants python-snappy, which has no wheel for all: cramjam has the same two calls.
    kafka.codec.snappy = types.SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
    )

DECODERS: dict[str, Any] = {
    "aiokafka's C": AiokafkaC,
    "aiokafka's Python": AiokafkaPython,
    "kafka-python": KafkaPython,
}


def decode(decoder: Any, data: bytes) -> list[Record]:
    """One whole batch, checked against its checksum."""
    batch = decoder(data)
    assert batch.validate_crc()
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers),
        )
        for record in batch
    ]


def _aiokafka(builder: Any) -> Callable[[Sequence[Record], int], bytes]:
    def build(records: Sequence[Record], codec: int) -> bytes:
        made = builder(2, codec, False, -1, -1, -1, 1 << 20)
        for record in records:
            made.append(
                record.offset, record.timestamp, record.key, record.value, list(record.headers)
            )
        return bytes(made.build())

    return build


def _kafka_python(records: Sequence[Record], codec: int) -> bytes:
    made = KafkaPythonBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for record in records:
        made.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(made.build())


BUILDERS: dict[str, Callable[[Sequence[Record], int], bytes]] = {
    "aiokafka's C": _aiokafka(AiokafkaCBuilder),
    "aiokafka's Python": _aiokafka(AiokafkaPythonBuilder),
    "kafka-python": _kafka_python,
}
