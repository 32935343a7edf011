"""Picklable values that the driver and the workers exchange.

Workers never call the catalog. A `TableRef` has all they need to write files for the table version
that the driver read; a `WrittenFile` has all the driver needs to commit one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

CATALOG_ONLY = ("uri", "type", "credential", "token")
"""Properties for access to the catalog, which workers do not get."""


@dataclass(frozen=True)
class TableRef:
    """A table version: schema with field ids, partitioning, location and access."""

    name: str
    uuid: str
    location: str
    schema_json: str
    spec_json: str
    properties: tuple[tuple[str, str], ...]
    io_properties: tuple[tuple[str, str], ...] = field(repr=False)
    """May contain credentials, so `repr` omits it."""

    @cached_property
    def schema(self) -> Schema:
        return Schema.model_validate_json(self.schema_json)

    @cached_property
    def spec(self) -> PartitionSpec:
        return PartitionSpec.model_validate_json(self.spec_json)

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The table's own properties."""
        return dict(self.properties)

    def open_io(self) -> FileIO:
        """Open access to the files with pyarrow."""
        return load_file_io(dict(self.io_properties), self.location)

    def __getstate__(self) -> dict[str, object]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


def table_ref(table: Table) -> TableRef:
    """Return the table version of this object."""
    return TableRef(
        name=".".join(table.name()),
        uuid=str(table.metadata.table_uuid),
        location=table.location(),
        schema_json=table.schema().model_dump_json(),
        spec_json=table.spec().model_dump_json(),
        properties=_sorted(table.properties),
        io_properties=_sorted(
            {name: value for name, value in table.io.properties.items() if name not in CATALOG_ONLY}
        ),
    )


def _sorted(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in properties.items() if value is not None))


@dataclass(frozen=True)
class WrittenFile:
    """A complete Parquet file that is not in a snapshot yet."""

    table_uuid: str
    schema_id: int
    spec_id: int
    written_ms: int
    data_file: DataFile

    @property
    def path(self) -> str:
        return self.data_file.file_path

    @property
    def rows(self) -> int:
        return self.data_file.record_count

    @property
    def bytes(self) -> int:
        return self.data_file.file_size_in_bytes

    def entry(self) -> DataFile:
        """Return the entry for a manifest."""
        self.data_file.spec_id = self.spec_id
        return self.data_file
