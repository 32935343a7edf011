"""The data files of a table's current snapshot, and their bounds in manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType


@dataclass(frozen=True)
class LiveFile:
    """A data file, and whether delete files may apply to it."""

    data_file: DataFile
    has_deletes: bool


def live_entries(table: Table) -> Iterator[LiveFile]:
    """Yield every live data file of the table version of this object.

    Delete files are not matched by partition: each may apply to any data file with the same or a
    lower sequence number.
    """
    snapshot = table.metadata.current_snapshot()
    if snapshot is None:
        return
    manifests = snapshot.manifests(table.io)
    newest_delete = max(
        (each.sequence_number for each in manifests if each.content == ManifestContent.DELETES),
        default=-1,
    )
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            sequence = entry.sequence_number or 0
            yield LiveFile(entry.data_file, sequence <= newest_delete)


def bounds_of(table: Table, file: DataFile, column: str) -> tuple[Any, Any] | None:
    """Return the bounds of a column; None if the file lacks one or has nulls."""
    field = table.schema().find_field(column)
    lower = (file.lower_bounds or {}).get(field.field_id)
    upper = (file.upper_bounds or {}).get(field.field_id)
    nulls = (file.null_value_counts or {}).get(field.field_id)
    if lower is None or upper is None or nulls or not isinstance(field.field_type, PrimitiveType):
        return None
    return from_bytes(field.field_type, lower), from_bytes(field.field_type, upper)
