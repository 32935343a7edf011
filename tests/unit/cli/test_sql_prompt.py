"""Statements that come from a pipe."""

from __future__ import annotations

import pytest

from neve.cli.sql_prompt import run_script


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("-- nothing\n", []),
        ("SELECT 1; SELECT 2", ["SELECT 1", " SELECT 2"]),
        ("SELECT 1; /* that was\nall */\n", ["SELECT 1"]),
        ("SELECT 1; -- one\n; /* two */ ;", ["SELECT 1"]),
        ("SELECT 'open", ["SELECT 'open"]),
    ],
)
def test_remarks_are_no_statements(text: str, wanted: list[str]) -> None:
    ran: list[str] = []
    assert run_script(text, ran.append) == 0
    assert ran == wanted
