"""Packages that only some commands need, and how to get them.

Commands import them when they run, so a missing one shows as a failed import anywhere, which
`application` reports in one line.
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
"""What the extra `lake` brings, as it is imported."""


def lake_is_installed() -> bool:
    """Whether the extra is there, without importing it."""
    return not _absent()


def need_lake() -> None:
    """Fail now rather than later, for a command that works long before it imports the extra."""
    for name in _absent():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _absent() -> list[str]:
    return [name for name in sorted(LAKE_PACKAGES) if importlib.util.find_spec(name) is None]


def missing_extra(error: ImportError) -> str | None:
    """How to install what could not be imported; None if that belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in LAKE_PACKAGES:
        return None
    return (
        f"this command needs the package {package}, which is not installed; it comes with Neve's "
        f"extra for Spark, tables and SQL: {INSTALL_LAKE}"
    )
