"""Write the table of metrics into docs/operators/metrics.md, from the catalogue in the code."""

from __future__ import annotations

from pathlib import Path

from neve.serving.catalogue import CATALOGUE, Family

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators" / "metrics.md"
START = "<!-- metrics: written by `make docs` -->"
END = "<!-- metrics end -->"


def table() -> str:
    """Return the table, with a row for each metric family."""
    rows = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*rows, *map(row, CATALOGUE.values())])


def row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    meaning = family.help.replace("|", "\\|")
    return f"| `{family.name}` | {family.kind} | {labels or 'none'} | {meaning} |"


def updated(page: str) -> str:
    """Return the page with a new table."""
    before, rest = page.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
