"""The page of the shared test modules lists each of them, and each package."""

from __future__ import annotations

import re

from tidy.repository import ROOT

SUPPORT = ROOT / "tests" / "support"


def test_the_page_lists_every_module_in_order() -> None:
    page = (SUPPORT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    modules = [file.stem for file in SUPPORT.glob("*.py") if file.stem != "__init__"]
    packages = [file.parent.name for file in SUPPORT.glob("*/__init__.py")]
    assert listed == sorted(modules + packages)
