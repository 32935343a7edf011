"""Keeps a table in shape: small files merged, old snapshots expired, dead objects deleted.

Every step stands alone, may be killed anywhere and repeated, and gives way to a running pipeline:
what another commit has overtaken is left for the next time, never forced. Offsets travel along.
"""

from neve.lake.tables.upkeep.job import maintain
from neve.lake.tables.upkeep.policy import MaintenanceReport, UpkeepPolicy

__all__ = ["MaintenanceReport", "UpkeepPolicy", "maintain"]
