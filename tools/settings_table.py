"""Write the tables of docs/operators/settings.md from the declarations of settings in the code."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from neve.settings import KIB, SettingDefinition, declared

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators" / "settings.md"
START = "<!-- settings: written by `make docs` -->"
END = "<!-- settings end -->"


def table() -> str:
    """Return all settings as Markdown, with one table per first part of their names."""
    parts = []
    for first, group in groupby(declared().values(), key=lambda about: about.name.split(".")[0]):
        parts.append(f"### `{first}.…`\n")
        parts.append("| setting | default | allowed | meaning | variable |")
        parts.append("| --- | --- | --- | --- | --- |")
        parts += [row(about) for about in group]
        parts.append("")
    return "\n".join(parts)


def row(about: SettingDefinition) -> str:
    meaning = about.doc.replace("|", "\\|")
    cells = (f"`{about.name}`", shown(about), allowed(about), meaning, f"`{about.variable}`")
    return f"| {' | '.join(cells)} |"


def shown(about: SettingDefinition) -> str:
    """Return the default; a size also in a larger unit, such as MiB."""
    if about.default == "":
        return "empty"
    plain = f"`{str(about.default).lower() if about.kind is bool else about.default}`"
    if not about.name.endswith("bytes") or about.default < KIB:
        return plain
    size, unit = about.default, "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size % KIB == 0:
            size, unit = size // KIB, larger
    return f"{plain} ({size} {unit})"


def allowed(about: SettingDefinition) -> str:
    if about.choices:
        return ", ".join(f"`{choice}`" for choice in about.choices)
    if about.kind is bool:
        return "`true`, `false`"
    return about.accepted.removeprefix("an ").removeprefix("a ")


def updated(page: str) -> str:
    """Return the page with new tables."""
    before, rest = page.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
