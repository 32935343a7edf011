"""The repository as the tidy tests see it: its files, its pages, its modules."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked_files() -> list[Path]:
    """What git tracks and is there; in an unpacked archive, what lies in it."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        found = [ROOT / name for name in listed.decode().split("\0") if name]
        return [file for file in found if file.is_file()]
    folders = ("src", "tests", "tools", "docs", ".ci")
    inside = [file for name in folders for file in (ROOT / name).rglob("*") if file.is_file()]
    return [file for file in [*ROOT.glob("*.*"), *inside] if "__pycache__" not in file.parts]


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def syntax_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def pages() -> list[Path]:
    """Every page a person reads: those of docs/ and those at the root."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def shown_name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def links_of(page: Path) -> list[Path]:
    """The files of this repository that a page links to, whether they exist or not."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [target.split("#")[0] for target in targets if "://" not in target]
    return [(page.parent / target).resolve() for target in local if target]
