"""docs/contributors/protocol.md lists the advertised APIs with their versions."""

from __future__ import annotations

import re

from neve.protocol.messages import APIS
from neve.protocol.notation import parse
from neve.protocol.schema import FIXED_WIDTHS, SIZED_TYPES
from tidy.repository import ROOT

PAGE = (ROOT / "docs" / "contributors" / "protocol.md").read_text(encoding="utf-8")


def rows_of_the_page() -> list[tuple[str, str, str, str]]:
    section = PAGE.split("## APIs and versions")[1].split("\n## ")[0]
    found = re.findall(
        r"^\| (\w+) \| (\d+) \| ([\d-]+) \| (\w+) \|.*\|$", section, flags=re.MULTILINE
    )
    return [(name, key, versions, flexible) for name, key, versions, flexible in found]


def test_the_table_of_apis_is_the_code_s() -> None:
    advertised = [
        (
            api.name,
            str(api.key),
            str(api.schema.versions),
            str(api.flexible_from) if api.flexible_from <= api.max_version else "never",
        )
        for api in APIS.values()
    ]
    assert rows_of_the_page() == advertised


def test_the_description_shown_is_one() -> None:
    (shown,) = re.findall(r"```\n(\w+ \d+, versions .*?)```", PAGE, flags=re.DOTALL)
    assert parse(shown).key in APIS


def test_every_type_is_named() -> None:
    (types,) = re.findall(r"\*\*Types\*\* are (.*?);", PAGE)
    assert set(re.findall(r"`(\w+)`", types)) == {*FIXED_WIDTHS, *SIZED_TYPES}
