"""Reject words that style rules replaced: in source, tools and pages, messages included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidy.repository import pages, shown_name, tracked_files


@dataclass(frozen=True, slots=True)
class Rejected:
    """A pattern, why it is rejected, and what to write instead."""

    pattern: str
    reason: str
    instead: str
    pages_too: bool = True


WORDS = [
    Rejected(r"told|tells?(?!\()|telling", "does not say how", "returns, raises, logs, notifies"),
    Rejected(r"whoever|whom|(no|some)body('s)?", "hides the actor", "name the component"),
    Rejected(r"who", "components are things", "that, which, or the component", pages_too=False),
    Rejected(r"anew|afresh", "archaic", "again, from scratch"),
    Rejected(r"so (much|many)(?! that)", "archaic", "the number or the setting"),
    Rejected(r"as it may|as far as it (goes|can)", "archaic", "the condition or the limit"),
    Rejected(
        r"(?<!there\s)is no (?!longer|more|less|other|different)[\w{]+",
        "inverted negative",
        "is not a, must be",
    ),
    Rejected(r"go(es)? without", "inverted negative", "cannot be combined with, has no"),
    Rejected(r"whole numbers?", "private word", "integer, with its bounds: an integer >= 1"),
    Rejected(r"leavings", "private word", "orphans, leftovers"),
]

NAMES = [
    Rejected(r"tending|upkeep", "private word", "maintenance, background loop"),
    Rejected(r"Pieces?", "meant two things", "LocatedRange, or what the part is of"),
    Rejected(r"Wanted", "meant four things", "FetchPartition, or what is requested"),
    Rejected(r"Looks", "does not say for what", "OffsetLookup"),
    Rejected(r"HeldSlices?", "private word", "CachedSlice"),
    Rejected(r"SharedTurns", "private word", "BatchedOffload"),
    Rejected(r"Patience", "private word", "ClientTimeouts"),
    Rejected(r"Strangers?", "private word", "unreferenced objects"),
    Rejected(r"Portions?", "private word", "MicroBatch"),
    Rejected(r"Harvests?", "private word", "BatchResult"),
]


def compiled(word: Rejected) -> re.Pattern[str]:
    """A pattern that matches whole words, also as parts of a name and over the end of a line."""
    spaced = word.pattern.replace(" ", r"[\s#*>]+")
    flag = "" if word.pattern[0].isupper() else "i"
    return re.compile(rf"(?<![A-Za-z])(?{flag}:{spaced})(?![a-z]|(?<=[A-Z])[A-Z])")


PATTERNS = [(word, compiled(word)) for word in [*WORDS, *NAMES]]


def complaints(text: str, is_page: bool) -> list[str]:
    return [
        f"{text.count(chr(10), 0, found.start()) + 1}: "
        f"'{' '.join(found[0].split())}' ({word.reason}): write {word.instead}"
        for word, pattern in PATTERNS
        if word.pages_too or not is_page
        for found in pattern.finditer(text)
    ]


def checked_files() -> list[Path]:
    sources = [file for file in tracked_files() if file.suffix == ".py"]
    return [*pages(), *(file for file in sources if shown_name(file).startswith(("src", "tools")))]


def rejected_in(file: Path) -> list[str]:
    found = complaints(file.read_text(encoding="utf-8"), file.suffix == ".md")
    return [f"{shown_name(file)}:{each}" for each in found]


def test_no_file_uses_a_rejected_word() -> None:
    found = [each for file in checked_files() for each in rejected_in(file)]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "The caller is told.",
        "told_at = 1",
        "commits are told\nin order",
        "so\n    # much of it",
        "'x' is no topic",
        "-p goes without -g",
        "class Piece:",
        "class UpkeepPolicy:",
        "neve.lake.tables.upkeep",
    ],
)
def test_rejected_words_are_found_in_prose_names_and_over_lines(text: str) -> None:
    assert complaints(text, is_page=False) != []


@pytest.mark.parametrize(
    "text",
    [
        "file.tell()",
        "there is no limit",
        "it is no longer led",
        "a piece",
        "whose",
        "intended",
        "WHOLE",
    ],
)
def test_ordinary_words_pass(text: str) -> None:
    assert complaints(text, is_page=False) == []


def test_a_page_may_say_who_reads_it() -> None:
    assert complaints("a person who operates Neve", is_page=True) == []
