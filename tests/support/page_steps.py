"""A docs page as a list of steps that a reader follows from top to bottom.

The code blocks of a page are steps:

- an indented block: shell commands, one per line;
- a Python block: a program;
- a YAML block: a file, whose name is a comment in its first line;
- a block after a comment `<!-- not run: reason -->`: skipped.

Blocks in other languages are ignored. `STAND_INS` replaces lines that cannot run in a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
_PICTURES = ("mermaid",)


class Command(NamedTuple):
    line: str

    @property
    def stays(self) -> bool:
        """It goes on until it is interrupted."""
        return self.line.startswith("neve serve") or "--follow" in self.line

    @property
    def needs_spark(self) -> bool:
        return self.line.startswith(("neve lake", "neve sql"))


class Program(NamedTuple):
    text: str

    @property
    def needs_spark(self) -> bool:
        return "neve.lake" in self.text


class File(NamedTuple):
    name: str
    text: str


Step = Command | Program | File


def steps_of(page: str) -> list[Step]:
    """Everything that a page tells its reader to do, in order."""
    return [step for block in _blocks(page) for step in _steps(*block)]


def _blocks(page: str) -> Iterator[tuple[str, str]]:
    """The language, "" for an indented block, and the text of each block that is run."""
    passed_over = False
    lines = iter([*page.splitlines(), ""])
    indented: list[str] = []
    for line in lines:
        if line.startswith("    "):
            indented.append(line[4:])
            continue
        if indented:
            if not passed_over:
                yield "", "\n".join(indented)
            indented, passed_over = [], False
        if line.startswith("```"):
            text = "\n".join(iter(lambda: next(lines), "```"))
            if not passed_over:
                yield line[3:], text
            passed_over = False
        elif _NOT_RUN.fullmatch(line):
            passed_over = True
        elif line:
            assert not passed_over, f"{line!r} stands between a block and that it is not run"


def _steps(language: str, text: str) -> list[Step]:
    if language == "":
        return [Command(line) for line in text.splitlines() if line]
    if language == "python":
        return [Program(text)]
    if language == "yaml":
        name = re.match(r"# (\S+)\n", text)
        assert name is not None, f"a file without a name: {text!r}"
        return [File(name[1], text + "\n")]
    assert language in _PICTURES, f"nothing here follows {language}: say why it is not run"
    return []
