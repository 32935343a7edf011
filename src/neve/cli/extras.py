"""Optional packages that only some commands need, and how to install them.

Commands import them when they run. `application` reports a failed import in one line.
"""

from __future__ import annotations

import importlib.util

INSTALL_LAKE = "pip install '.[lake]' in the folder of Neve's source"
LAKE_PACKAGES = frozenset(
    {
        "fastavro", "pandas", "pyiceberg", "pyruhvro", "pyspark", "py4j", "scramp", "sqlalchemy",
        "sqlglot", "yaml",
    }
)  # fmt: skip
"""The packages of the extra `lake`, by import name."""


def lake_is_installed() -> bool:
    """Return whether the extra is installed, without importing it."""
    return not _absent()


def need_lake() -> None:
    """Raise ModuleNotFoundError now, for a command that imports the extra only after long work."""
    for name in _absent():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _absent() -> list[str]:
    return [name for name in sorted(LAKE_PACKAGES) if importlib.util.find_spec(name) is None]


def missing_extra(error: ImportError) -> str | None:
    """Return how to install a missing module; None if it does not belong to an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in LAKE_PACKAGES:
        return None
    return (
        f"this command needs the package {package}, which is not installed; it is part of Neve's "
        f"extra for Spark, tables and SQL: {INSTALL_LAKE}"
    )
