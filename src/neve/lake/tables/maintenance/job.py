"""All upkeep of one table, in the order in which one step makes work for the next."""

from __future__ import annotations

from pyiceberg.table import Table

from neve.lake.tables.maintenance.expiring import expire
from neve.lake.tables.maintenance.merging import merge_small_files
from neve.lake.tables.maintenance.orphans import remove_orphans
from neve.lake.tables.maintenance.policy import MaintenancePolicy, MaintenanceReport


def maintain(table: Table, policy: MaintenancePolicy | None = None) -> MaintenanceReport:
    """Merge, expire, delete. Safe beside running pipelines and other upkeep, and to kill."""
    policy = policy or MaintenancePolicy()
    report = MaintenanceReport()
    merge_small_files(table, policy, report)
    expire(table, policy, report)
    remove_orphans(table, policy, report)
    return report
