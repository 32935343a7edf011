"""Functions and files stay small enough to be read in one go."""

from __future__ import annotations

import ast

from tidy.repository import shown_name, source_files, syntax_of

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 450


def test_no_function_is_long() -> None:
    long = [
        f"{shown_name(file)}:{node.lineno} {node.name}: {length} lines"
        for file in source_files()
        for node in ast.walk(syntax_of(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert long == [], f"a function past {FUNCTION_LINES_MAX} lines is two functions"


def test_no_file_is_long() -> None:
    long = [
        f"{shown_name(file)}: {length} lines"
        for file in source_files()
        if (length := len(file.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]
    assert long == [], f"a file past {FILE_LINES_MAX} lines is two files"


def test_every_file_says_what_it_is_for() -> None:
    silent = [shown_name(file) for file in source_files() if not ast.get_docstring(syntax_of(file))]
    assert silent == [], "a module opens with what it is for"


def test_no_file_is_named_after_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert [shown_name(file) for file in source_files() if file.stem in vague] == []
