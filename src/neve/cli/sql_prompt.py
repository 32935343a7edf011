"""The interactive prompt of `neve sql`: statements end with a semicolon, Ctrl-C cancels one.

`\\d` lists relations, `\\d NAME` shows columns, `\\?` shows help, `\\q` or Ctrl-D quits. The same
statements can come from a pipe.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from neve.cli.output import complain
from neve.errors import NeveError
from neve.store.durable import make_private

PROMPT, MORE = "neve> ", "   -> "
HISTORY_LINES_MAX = 2_000
HELP = """\
Statements end with a semicolon: SELECT …; SHOW TABLES; DESCRIBE name; EXPLAIN SELECT …;
  \\d          topics and tables        \\d NAME     columns of one
  \\q, Ctrl-D  quit                     Ctrl-C      cancel the statement
  value:a.b   a field of a JSON value, as text     `odd-name`  names with dots or dashes"""


def run_script(text: str, run: Callable[[str], None]) -> int:
    """Run the statements of a text and stop at the first failure."""
    from neve.lake.sql.statements import has_statement, split

    statements, rest = split(text)
    for statement in filter(has_statement, [*statements, rest]):
        run(statement)
    return 0


def run_prompt(run: Callable[[str], None]) -> int:
    """Read statements and run them until the input ends; a failed one does not end it."""
    _use_history()
    print("Statements end with a semicolon; \\? shows help, \\q quits.")
    waiting = ""
    while True:
        try:
            line = input(MORE if waiting.strip() else PROMPT)
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            waiting = ""
            continue
        if not waiting.strip() and line.strip().startswith("\\"):
            if _command(line.strip(), run) == "quit":
                return 0
            continue
        if not waiting.strip() and line.strip().lower() in ("quit", "exit"):
            return 0
        waiting = _run_complete(f"{waiting}{line}\n", run)


def _run_complete(text: str, run: Callable[[str], None]) -> str:
    """Run the complete statements. Returns the rest of the text."""
    from neve.lake.sql.statements import split

    statements, rest = split(text)
    for statement in statements:
        if not _attempt(statement, run):
            return ""
    return rest if rest.strip() else ""


def _attempt(statement: str, run: Callable[[str], None]) -> bool:
    try:
        run(statement)
    except NeveError as error:
        complain(error)
        return False
    except KeyboardInterrupt:
        complain("stopped")
        return False
    return True


def _command(line: str, run: Callable[[str], None]) -> str:
    word, _, rest = line.partition(" ")
    if word in ("\\q", "\\quit"):
        return "quit"
    if word in ("\\d", "\\dt"):
        _attempt(f"DESCRIBE {rest}" if rest.strip() else "SHOW TABLES", run)
    else:
        print(HELP)
    return ""


def _use_history() -> None:
    """Enable line editing and history, if readline is available."""
    try:
        import atexit
        import readline
    except ImportError:
        return
    root = os.environ.get("XDG_STATE_HOME")
    file = (Path(root) if root else Path.home() / ".local" / "state") / "neve" / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(HISTORY_LINES_MAX)

    def keep() -> None:
        with contextlib.suppress(OSError):
            make_private(file.parent)
            readline.write_history_file(file)

    atexit.register(keep)


def standard_input_is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
