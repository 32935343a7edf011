"""Compares the speed of decoding records to Arrow: Neve's kernel against aiokafka's C decoder.

Both decode the same chunks on one core, to the same five columns. The kernel always verifies
checksums; aiokafka runs with and without. The decoders run alternately, so that other load on the
machine affects all of them; medians are compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from neve import runtime
from neve.errors import InvalidError, NeveError
from neve.records import arrow
from neve.records.batch import patch
from neve.records.reference import Record, build_batch

BATCH_BYTES = 64 * 1024
"""Bytes of values in one Kafka batch. Producers' defaults are 16 KiB (Java), 1 MB (librdkafka)."""
READ_BYTES = arrow.BATCH_BYTES_MAX
"""Bytes that one call decodes. They fit the CPU's caches, and calls reuse the same memory."""
KEY_BYTES = 8
TARGETS = {100: 8.0, 1024: 4.0}
"""Value size to the required ratio of the kernel's rate to aiokafka's."""

_FIRST_TIME_MS = 1_700_000_000_000


def run(
    records: int = 300_000, value_bytes: Sequence[int] = (100, 1024), repeats: int = 7
) -> dict[str, Any]:
    """Measure each value size. The result can be written as JSON."""
    if records < 1 or repeats < 1 or any(size < 1 for size in value_bytes):
        raise InvalidError("records, repeats and value sizes must be at least 1")
    peer = _peer()
    results = [_compare(make_pieces(records, size), size, repeats, peer) for size in value_bytes]
    return {
        "benchmark": "records",
        "batch_bytes": BATCH_BYTES,
        "key_bytes": KEY_BYTES,
        "repeats": repeats,
        "results": results,
        "passed": all(row["passed"] for row in results),
    }


def make_pieces(records: int, value_bytes: int) -> list[bytes]:
    """Return uncompressed batches with at least `records` records, in chunks of READ_BYTES."""
    count = max(1, BATCH_BYTES // value_bytes)
    values = [(b"%d," % index * value_bytes)[:value_bytes] for index in range(count)]
    keys = [b"%0*d" % (KEY_BYTES, index) for index in range(count)]
    batch = build_batch(
        [Record(i, _FIRST_TIME_MS + i, keys[i], values[i]) for i in range(count)], leader_epoch=0
    )
    pieces: list[bytes] = []
    made = bytearray()
    for base_offset in range(0, records, count):
        if made and len(made) + len(batch) > READ_BYTES:
            pieces.append(bytes(made))
            made.clear()
        made += batch
        patch(made, base_offset, 0, len(made) - len(batch))
    return [*pieces, bytes(made)]


def _compare(
    pieces: list[bytes],
    value_bytes: int,
    repeats: int,
    peer: Callable[[bytes, bool], pa.RecordBatch],
) -> dict[str, Any]:
    rows = 0
    for piece in pieces:
        ours = arrow.to_arrow(piece)
        rows += ours.num_rows
        if not ours.equals(peer(piece, True)):
            raise NeveError("the kernel and aiokafka give different columns for the same bytes")
    contenders: dict[str, Callable[[bytes], object]] = {
        "kernel": arrow.to_arrow,
        "aiokafka": lambda piece: peer(piece, True),
        "aiokafka_unchecked": lambda piece: peer(piece, False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            started = runtime.monotonic()
            for piece in pieces:
                contender(piece)
            seconds[name].append(runtime.monotonic() - started)
    rates = {name: rows / statistics.median(taken) for name, taken in seconds.items()}
    ratio = rates["kernel"] / rates["aiokafka"]
    target = TARGETS.get(value_bytes)
    return {
        "value_bytes": value_bytes,
        "records": rows,
        "bytes": sum(map(len, pieces)),
        "records_per_second": {name: round(rate) for name, rate in rates.items()},
        "ratio": round(ratio, 2),
        "ratio_unchecked": round(rates["kernel"] / rates["aiokafka_unchecked"], 2),
        "target": target,
        "passed": target is None or ratio >= target,
    }


def _peer() -> Callable[[bytes, bool], pa.RecordBatch]:
    try:
        from aiokafka.record._crecords import (  # type: ignore[import-untyped]
            MemoryRecords,
        )
    except ImportError as error:
        raise InvalidError(
            f"the comparison needs aiokafka with its C extension: pip install aiokafka ({error})"
        ) from error

    def decode(data: bytes, checked: bool) -> pa.RecordBatch:
        """Decode in the simplest fast way: attributes to lists, lists to arrays."""
        offsets: list[int] = []
        times: list[int] = []
        types: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        batches = MemoryRecords(data)
        while (batch := batches.next_batch()) is not None:
            if checked and not batch.validate_crc():
                raise NeveError("aiokafka finds a batch damaged")
            for record in batch:
                offsets.append(record.offset)
                times.append(record.timestamp)
                types.append(record.timestamp_type)
                keys.append(record.key)
                values.append(record.value)
        fields = arrow.schema()
        millis = pa.array(times, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
        columns = [pa.array(offsets), millis.cast(fields.field("timestamp").type)]
        columns += [pa.array(types, pa.int32()), pa.array(keys, pa.binary())]
        return pa.RecordBatch.from_arrays([*columns, pa.array(values, pa.binary())], schema=fields)

    return decode
