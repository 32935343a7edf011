"""Writes rows to Parquet files of a table, in a worker, without the catalog.

A task writes one file per partition of the table. It starts another when a file reaches the table's
target size, or when more than `OPEN_PARTITIONS_MAX` partitions are open. All buffers together stay
below `BUFFERED_BYTES_MAX`: the fullest is written first.

File names have a random part, so a repeated or concurrent run of a task never touches the files of
another run. Files that are not committed are removed later as orphans.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Record

from neve import runtime
from neve.lake.tables.columns import FileColumns
from neve.lake.tables.file_names import task_prefix
from neve.lake.tables.parquet_options import dictionary_columns, statistics_plan
from neve.lake.tables.partition_split import PartitionSplitter, PartitionValues
from neve.lake.tables.table_ref import TableRef, WrittenFile

MIB = 1024 * 1024
TARGET_BYTES = 128 * MIB
"""The default size of a file: one task of a reader."""
ROW_GROUP_BYTES = 32 * MIB
"""The size in memory of one row group: large enough to compress, small for a worker."""
PAGE_ROWS_MAX = 1 << 20
"""Pages are limited by bytes instead. With pyarrow's 20,000 rows, pages of small columns are so
short that files are larger by a third and slower to write."""
BUFFERED_BYTES_MAX = 128 * MIB
OPEN_PARTITIONS_MAX = 32


def write_files(table: TableRef, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
    """Write all rows. Returns the files, complete and closed; none if there are no rows."""
    writer = _TaskWriter(table)
    try:
        for batch in batches:
            writer.add(batch)
        return writer.finish()
    finally:
        writer.abandon()


class _TaskWriter:
    """The open files of one task, least recently used first."""

    def __init__(self, table: TableRef) -> None:
        self._shared = _Shared(table)
        self._columns = FileColumns(table.schema, table.name)
        self._splitter = PartitionSplitter(table.spec, table.schema)
        self._open: OrderedDict[PartitionValues, _File] = OrderedDict()
        self._written: list[WrittenFile] = []
        self._buffered_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        for part in _sliced(self._columns.fit(batch)):
            for values, rows in self._splitter.split(part):
                file = self._file_of(values)  # may close another file
                self._buffered_bytes += file.add(self._columns.named(rows))
                self._relieve(values)

    def _file_of(self, values: PartitionValues) -> _File:
        if values not in self._open:
            if len(self._open) >= OPEN_PARTITIONS_MAX:
                self._close(next(iter(self._open)))
            self._open[values] = _File(self._shared, values)
        self._open.move_to_end(values)
        return self._open[values]

    def _relieve(self, values: PartitionValues) -> None:
        file = self._open[values]
        if file.buffered_bytes >= ROW_GROUP_BYTES:
            self._flush(file)
            if file.bytes >= self._shared.target_bytes:
                self._close(values)
        while self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda each: each.buffered_bytes))

    def _flush(self, file: _File) -> None:
        self._buffered_bytes -= file.buffered_bytes
        file.flush()

    def _close(self, values: PartitionValues) -> None:
        file = self._open.pop(values)
        self._flush(file)
        self._written.append(file.finish())

    def finish(self) -> list[WrittenFile]:
        while self._open:
            self._close(next(iter(self._open)))
        return self._written

    def abandon(self) -> None:
        """Close what a failure left open; the files are orphans."""
        while self._open:
            self._open.popitem()[1].drop()


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of at most a row group, to keep the memory bounds."""
    if batch.num_rows:
        rows = max(1, batch.num_rows * ROW_GROUP_BYTES // max(batch.nbytes, 1))
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows)


class _Shared:
    """What all files of a task share."""

    def __init__(self, table: TableRef) -> None:
        self.table = table
        self.io = table.open_io()
        self.file_schema = sanitize_column_names(table.schema)
        self.statistics = statistics_plan(self.file_schema, table.settings)
        self.ids = parquet_path_to_id_mapping(self.file_schema)
        target = table.settings.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES)
        self.target_bytes = int(target) if target else TARGET_BYTES
        codec = table.settings.get(TableProperties.PARQUET_COMPRESSION, "zstd")
        self.compression = "none" if codec == "uncompressed" else codec
        self._prefix = task_prefix(table.uuid)
        self._count = 0

    def next_path(self, values: PartitionValues) -> str:
        self._count += 1
        folder = f"{self.table.location.rstrip('/')}/data"
        spec = self.table.spec
        if not spec.is_unpartitioned():
            folder += f"/{spec.partition_to_path(Record(*values), self.table.schema)}"
        return f"{folder}/{self._prefix}-{self._count:05d}.parquet"


class _File:
    """One Parquet file, created with its first row group."""

    def __init__(self, shared: _Shared, values: PartitionValues) -> None:
        self._shared = shared
        self._values = values
        self._path = shared.next_path(values)
        self._buffer: list[pa.RecordBatch] = []
        self._stream: Any = None
        self._writer: pq.ParquetWriter | None = None
        self.buffered_bytes = 0

    @property
    def bytes(self) -> int:
        return 0 if self._stream is None else int(self._stream.tell())

    def add(self, rows: pa.RecordBatch) -> int:
        """Buffer rows. Returns their size in bytes."""
        size = int(rows.nbytes)  # Arrow computes it each time
        self._buffer.append(rows)
        self.buffered_bytes += size
        return size

    def flush(self) -> None:
        if self._buffer:
            rows = pa.Table.from_batches(self._buffer)
            if self._writer is None:
                self._writer = self._begin(rows)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._buffer = []
        self.buffered_bytes = 0

    def _begin(self, rows: pa.Table) -> pq.ParquetWriter:
        self._stream = self._shared.io.new_output(self._path).create()
        return pq.ParquetWriter(
            self._stream,
            rows.schema,
            compression=self._shared.compression,
            use_dictionary=dictionary_columns(rows),
            store_decimal_as_integer=True,
            max_rows_per_page=PAGE_ROWS_MAX,
        )

    def finish(self) -> WrittenFile:
        assert self._writer is not None, "a file has at least one row"
        self._writer.close()
        size = self.bytes
        self._stream.close()
        shared = self._shared
        statistics = data_file_statistics_from_parquet_metadata(
            self._writer.writer.metadata, shared.statistics, shared.ids
        )
        return WrittenFile(
            table_uuid=shared.table.uuid,
            schema_id=shared.table.schema.schema_id,
            spec_id=shared.table.spec.spec_id,
            written_ms=runtime.now_ms(),
            data_file=DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=self._path,
                file_format=FileFormat.PARQUET,
                partition=Record(*self._values),
                file_size_in_bytes=size,
                sort_order_id=None,
                spec_id=shared.table.spec.spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            ),
        )

    def drop(self) -> None:
        """Close the file without committing it; it is an orphan."""
        self._buffer = []
        if self._writer is not None:
            self._writer.close()
            self._stream.close()
