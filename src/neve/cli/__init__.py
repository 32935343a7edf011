"""The command `neve`: one module per subcommand, collected in `application`.

Exit codes: 0 success, 1 failure (one line on standard error says what), 2 invalid arguments or
settings, 130 interrupted. `serve` and `sql` have further codes. A command ends silently when the
reader of its output closes the pipe.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns its exit code."""
    try:
        from neve.cli.application import run

        return run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
