"""Table maintenance: merge small files, expire old snapshots, delete unreferenced objects.

Each step is independent, can be killed at any point and repeated, and yields to a running pipeline:
work that another commit has overtaken is left for the next run. Offsets are carried along.
"""

from __future__ import annotations

from pyiceberg.table import Table

from neve.lake.tables.maintenance.orphan_files import remove_orphans
from neve.lake.tables.maintenance.policy import MaintenancePolicy, MaintenanceReport
from neve.lake.tables.maintenance.small_files import merge_small_files
from neve.lake.tables.maintenance.snapshot_expiry import expire

__all__ = ["MaintenancePolicy", "MaintenanceReport", "maintain"]


def maintain(table: Table, policy: MaintenancePolicy | None = None) -> MaintenanceReport:
    """Merge, expire, delete, in this order: each step makes work for the next.

    Safe to run concurrently with pipelines and other maintenance, and to kill.
    """
    policy = policy or MaintenancePolicy()
    report = MaintenanceReport()
    merge_small_files(table, policy, report)
    expire(table, policy, report)
    remove_orphans(table, policy, report)
    return report
