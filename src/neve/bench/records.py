"""How fast records become Arrow columns: Neve's kernel against aiokafka's C decoder.

Both read the same bytes on one core, in the same pieces, and end with the same five columns. The
kernel always verifies checksums; aiokafka runs with and without. Runs take turns, so that a noisy
neighbour disturbs all; medians are compared.
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
"""Values in one Kafka batch. Producers' defaults are 16 KiB (Java) and 1 MB (librdkafka)."""
READ_BYTES = arrow.BATCH_BYTES_MAX
"""What one call decodes. It fits the caches, and the memory of a call is reused by the next."""
KEY_BYTES = 8
TARGETS = {100: 8.0, 1024: 4.0}
"""Value size, and how many times aiokafka's rate the kernel must reach there."""

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
    """Return uncompressed batches of `records` or more records, in chunks as a reader gets them."""
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
        """The plainest quick way: attributes to lists, lists to arrays."""
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
