"""Reads planned files of a table in a Spark worker, as Arrow batches of the query's columns.

pyiceberg applies position deletes, deletion vectors and schema evolution; equality deletes are
applied afterwards. Files are read batch by batch, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from neve.lake.sql.iceberg.equality import Deleted, fields_by_id
from neve.lake.sql.iceberg.types import arrow_schema, converted

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True)
class FileTask:
    """One data file with its delete files."""

    scan: FileScanTask
    equality_deletes: tuple[DataFile, ...] = ()

    @property
    def data_bytes(self) -> int:
        return int(self.scan.file.file_size_in_bytes)


@dataclass(frozen=True)
class TableRead:
    """How a table is read: its columns and row filter."""

    metadata: TableMetadata
    io: FileIO
    columns: tuple[str, ...]
    row_filter: BooleanExpression

    def projected(self) -> Schema:
        return self.metadata.schema().select(*self.columns)

    def schema(self) -> pa.Schema:
        """Return the columns with the types of queries."""
        return arrow_schema(self.projected())

    def batches(self, tasks: Sequence[FileTask]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these files that are not deleted."""
        wanted = self.schema()
        deleted: dict[str, Deleted] = {}
        for task in tasks:
            for batch in self._of_file(task, deleted):
                columns = [
                    converted(batch.column(at), field.type) for at, field in enumerate(wanted)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _of_file(self, task: FileTask, known: dict[str, Deleted]) -> Iterator[pa.RecordBatch]:
        if not task.equality_deletes:
            yield from self._scan(self.projected(), [task.scan])
            return
        deletes = [self._deleted(file, known) for file in task.equality_deletes]
        schema = self._with_columns(number for each in deletes for number in each.columns)
        places = {field.field_id: at for at, field in enumerate(schema.fields)}
        for batch in self._scan(schema, [task.scan]):
            left = batch
            for each in deletes:
                left = each.left(left, places.__getitem__)
            if left.num_rows:
                yield left

    def _with_columns(self, numbers: Iterable[int]) -> Schema:
        """Return the query's columns, followed by those of equality deletes."""
        from pyiceberg.schema import Schema

        fields = list(self.projected().fields)
        missing = [n for n in dict.fromkeys(numbers) if n not in {f.field_id for f in fields}]
        return Schema(*fields, *fields_by_id(self.metadata, missing))

    def _deleted(self, file: DataFile, known: dict[str, Deleted]) -> Deleted:
        if file.file_path not in known:
            from pyiceberg.expressions import AlwaysTrue
            from pyiceberg.schema import Schema
            from pyiceberg.table import FileScanTask

            numbers = list(file.equality_ids or [])
            schema = Schema(*fields_by_id(self.metadata, numbers))
            task = FileScanTask(file, residual=AlwaysTrue())
            rows = self._scan(schema, [task], filtered=False)
            known[file.file_path] = Deleted(numbers, list(rows))
        return known[file.file_path]

    def _scan(
        self, schema: Schema, tasks: list[FileScanTask], *, filtered: bool = True
    ) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import pyarrow as reading

        from neve.lake.sql.iceberg.nulls import keep_nulls
        from neve.lake.tables.pyiceberg_private import scan_batches

        keep_nulls()
        condition = self.row_filter if filtered else AlwaysTrue()
        scan = reading.ArrowScan(self.metadata, self.io, schema, condition)
        yield from scan_batches(scan, self.io, tasks)


def read_groups(
    read: TableRead, groups: Sequence[Sequence[FileTask]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read this task's groups in a worker. The first column of `numbers` has their indexes."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read.batches(groups[number])
