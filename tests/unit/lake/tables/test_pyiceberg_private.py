"""Private parts of pyiceberg are used in one module."""

from __future__ import annotations

import re
from pathlib import Path

import neve.lake

PRIVATE = re.compile(
    r"^from pyiceberg[\w.]* import [^(\n]*\b_\w+"
    r"|\._(do_commit|commit|read_all_delete_files|record_batches_from_scan_tasks_and_deletes)\(",
    re.MULTILINE,
)


def test_only_one_module_uses_private_parts_of_pyiceberg() -> None:
    lake = Path(neve.lake.__file__).parent
    users = {
        file.relative_to(lake).as_posix()
        for folder in ("tables", "sql", "pipeline")
        for file in (lake / folder).rglob("*.py")
        if PRIVATE.search(re.sub(r"self\._\w+\(", "", file.read_text(encoding="utf-8")))
    }
    assert users == {"tables/pyiceberg_private.py"}
