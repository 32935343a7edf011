"""docs/users/postgres.md lists every limit with its default."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from neve.lake.pgwire import Limits

PAGE = (Path(__file__).parents[4] / "docs" / "users" / "postgres.md").read_text(encoding="utf-8")
UNITS = {"": 1, " KiB": 1024, " MiB": 1024 * 1024}


def test_the_table_of_limits_is_the_code_s() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+)( KiB| MiB|) \|", PAGE, flags=re.MULTILINE)
    shown = {name: int(number) * UNITS[unit] for name, number, unit in rows}
    assert shown == {field.name: field.default for field in dataclasses.fields(Limits)}
