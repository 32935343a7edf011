"""Delete files for Iceberg tables; pyiceberg reads some kinds and writes none."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_positions(table: Table, rows: dict[str, list[int]]) -> None:
    """Delete rows by file and position in it."""
    paths = [path for path, positions in rows.items() for _ in positions]
    positions = [position for found in rows.values() for position in found]
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    listed = pa.table([paths, positions], schema=schema)
    _commit(table, listed, DataFileContent.POSITION_DELETES, None)


def delete_equal(
    table: Table, values: pa.Table, by: list[str], partition: Record | None = None
) -> None:
    """Delete older rows that have these values in the columns `by`."""
    schema = table.schema()
    fields = [
        field.with_metadata({"PARQUET:field_id": str(schema.find_field(field.name).field_id)})
        for field in values.schema
    ]
    ids = [schema.find_field(name).field_id for name in by]
    listed = pa.table(values.columns, schema=pa.schema(fields))
    _commit(table, listed, DataFileContent.EQUALITY_DELETES, ids, partition)


def _commit(
    table: Table,
    rows: pa.Table,
    content: DataFileContent,
    equality_ids: list[int] | None,
    partition: Record | None = None,
) -> None:
    name = uuid.uuid4().hex
    path = Path(table.location().removeprefix("file://")) / "data" / f"deletes-{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    data_file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        equality_ids=equality_ids,
    )
    data_file.spec_id = table.spec().spec_id
    snapshot = _snapshot(table, data_file, name)
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref="main", snapshot_id=snapshot.parent_snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
            ),
        ),
    )
    table.refresh()


def _snapshot(table: Table, data_file: DataFile, name: str) -> Snapshot:
    current = table.current_snapshot()
    assert current is not None
    number = table.metadata.new_snapshot_id()
    folder = f"{table.location()}/metadata"
    output = table.io.new_output(f"{folder}/{name}-m0.avro")
    with _DeletesWriter(table.spec(), table.schema(), output, number, "deflate") as manifest:
        manifest.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=data_file
            )
        )
    sequence = table.metadata.next_sequence_number()
    listing = f"{folder}/snap-{number}-{name}.avro"
    with write_manifest_list(
        2, table.io.new_output(listing), number, current.snapshot_id, sequence, "deflate"
    ) as manifests:
        manifests.add_manifests([*current.manifests(table.io), manifest.to_manifest_file()])
    totals = current.summary.additional_properties if current.summary else {}
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=current.snapshot_id,
        manifest_list=listing,
        sequence_number=sequence,
        schema_id=table.metadata.current_schema_id,
        summary=Summary(Operation.DELETE, **totals),
    )
