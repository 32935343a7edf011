"""The command `neve`: a file for each noun, `application` over them, `output` under them.

Exit codes: 0 all is well, 1 something went wrong and is told in one line on standard error, 2 the
command was not understood, 130 interrupted; `serve` and `sql` have some of their own. A reader
that goes away (a closed pipe) ends a command quietly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    try:
        from neve.cli.application import run

        return run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
