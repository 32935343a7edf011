"""Spools the rows of a result in Spark's tasks: few in memory, many in a file.

A task returns its rows all at once, and the JVM and this process would hold them completely. So
beyond a few megabytes a task writes them to a file, which this process reads batch by batch. That
needs a common disk: on a cluster a task returns its partition as a whole, up to a limit.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from neve.lake.sql.errors import ResultTooLargeError

KIB, MIB, GIB = 1024, 1024**2, 1024**3
BATCH_BYTES = 4 * MIB
"""The approximate size of a result's batch; a larger row is a batch of its own."""
MEMORY_BYTES = 8 * MIB
"""Rows of one partition kept in memory; beyond that the task writes a file."""
DATA, FILE = "data", "file"
SCHEMA = f"{DATA} BINARY, {FILE} STRING"
"""One partition as a row: its batches, or the path of the file with them."""
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class ResultLimits:
    """Limits on the size of results, in bytes as Arrow counts them."""

    row_bytes_max: int = 64 * MIB
    """One row. Several copies of it are in memory on the way to a client."""
    partition_bytes_max: int = 8 * GIB
    """One partition of a result on this machine's disk."""
    collected_bytes_max: int = 256 * MIB
    """One partition of a result in memory, if Spark runs on other machines."""


DEFAULT_LIMITS = ResultLimits()


@dataclass(frozen=True)
class Spooler:
    """Runs in tasks. `folder` is None if they run on other machines."""

    folder: str | None
    limits: ResultLimits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the rows of a partition and yield at most one row of SCHEMA, for `mapInArrow`."""
        kept = bytearray()
        written, file = 0, None
        try:
            for batch in batches:
                message = memoryview(batch.serialize())
                written += _LENGTH.size + message.nbytes
                self._check(message.nbytes, written)
                if file is None and self.folder is not None and written > MEMORY_BYTES:
                    file = tempfile.NamedTemporaryFile(dir=self.folder, delete=False)  # noqa: SIM115
                    file.write(kept)
                    kept.clear()
                for part in (_LENGTH.pack(message.nbytes), message):
                    if file is None:
                        kept += part
                    else:
                        file.write(part)
        finally:
            if file is not None:
                file.close()
        if written:
            columns = ([bytes(kept)], [None]) if file is None else ([None], [file.name])
            arrays = [pa.array(columns[0], pa.binary()), pa.array(columns[1], pa.string())]
            yield pa.record_batch(arrays, names=[DATA, FILE])

    def _check(self, batch_bytes: int, written: int) -> None:
        limits = self.limits
        if batch_bytes > BATCH_BYTES + limits.row_bytes_max:
            raise ResultTooLargeError(
                f"a row of the result has more than {limits.row_bytes_max} bytes "
                "(--row-bytes-max): select less of it"
            )
        spooled = self.folder is not None
        allowed = limits.partition_bytes_max if spooled else limits.collected_bytes_max
        if written > allowed:
            flag = "--partition-bytes-max" if spooled else "where Spark runs on other machines"
            raise ResultTooLargeError(
                f"a partition of the result has more than {allowed} bytes ({flag}): "
                "select fewer rows or columns, or sort less"
            )


def read_messages(data: bytes | None, file: str | None) -> Iterator[pa.Buffer]:
    """Yield the batches of one task. Deletes its file."""
    if file is None:
        yield from _messages(pa.BufferReader(data or b""))
        return
    with contextlib.closing(pa.OSFile(file)) as source:
        Path(file).unlink()
        yield from _messages(source)


def _messages(source: BinaryIO) -> Iterator[pa.Buffer]:
    while prefix := source.read(_LENGTH.size):
        yield pa.py_buffer(source.read(_LENGTH.unpack(prefix)[0]))
