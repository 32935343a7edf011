"""Iceberg tables that are their own checkpoint: exactly-once commits, without Spark.

A table's offsets are part of its commits (`progress`, `history`). Workers write Parquet files
without the catalog (`table_ref`, `data_files`, `partition_split`). The driver commits them onto
exactly the table version it read (`commit_attempt`, `commits`, `dead_letters`). Maintenance carries
the offsets along (`maintenance`). docs/contributors/lake.md explains the order of the steps.
"""

from neve.lake.tables.catalogs import catalog_of
from neve.lake.tables.commit_attempt import BusyTableError, CommitUnknownError
from neve.lake.tables.commit_outcome import CommitKind, CommitOutcome
from neve.lake.tables.commits import commit, commit_range, declare_progress
from neve.lake.tables.data_files import write_files
from neve.lake.tables.dead_letters import Claim, commit_dead_letters
from neve.lake.tables.history import NoProgressError, read_progress
from neve.lake.tables.maintenance import MaintenancePolicy, MaintenanceReport, maintain
from neve.lake.tables.progress import Progress, TopicProgress
from neve.lake.tables.schema_evolution import SchemaMovedError, apply_evolution
from neve.lake.tables.table_creation import open_dead_letters, open_table
from neve.lake.tables.table_ref import TableRef, WrittenFile, table_ref

__all__ = [
    "BusyTableError",
    "Claim",
    "CommitKind",
    "CommitOutcome",
    "CommitUnknownError",
    "MaintenancePolicy",
    "MaintenanceReport",
    "NoProgressError",
    "Progress",
    "SchemaMovedError",
    "TableRef",
    "TopicProgress",
    "WrittenFile",
    "apply_evolution",
    "catalog_of",
    "commit",
    "commit_dead_letters",
    "commit_range",
    "declare_progress",
    "maintain",
    "open_dead_letters",
    "open_table",
    "read_progress",
    "table_ref",
    "write_files",
]
