"""Keeps a table in shape: small files merged, old snapshots expired, dead objects deleted.

Every step stands alone, may be killed anywhere and repeated, and gives way to a running pipeline:
what another commit has overtaken is left for the next time, never forced. Offsets travel along.
"""

from neve.lake.tables.maintenance.job import maintain
from neve.lake.tables.maintenance.policy import MaintenancePolicy, MaintenanceReport

__all__ = ["MaintenancePolicy", "MaintenanceReport", "maintain"]
