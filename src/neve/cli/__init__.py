"""The command `neve`: one file per noun, and `output` for what all of them print.

Exit codes: 0 all is well, 1 something went wrong and is told in one line on standard error, 2 the
command was not understood, 130 interrupted. A reader that goes away (a closed pipe) ends a command
quietly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from neve import __version__
from neve.cli import bench, demo, storage
from neve.cli.output import UsageError, complain
from neve.errors import NeveError

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_PIPE = 1, 2, 130, 141


def build_app() -> App:
    """All commands."""
    app = App(
        name="neve",
        help="A Kafka-compatible streaming log whose only durable state is a bucket.",
        version=__version__,
        suppress_keyboard_interrupt=False,
        help_format="markdown",
    )
    app.command(storage.app)
    app.command(bench.app)
    app.command(demo.demo)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(tokens)
        sys.stdout.flush()
    except (CycloptsError, UsageError) as error:
        complain(f"{error} (see neve --help)")
        return EXIT_USAGE
    except NeveError as error:
        complain(error)
        return EXIT_FAILED
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _run(tokens: list[str]) -> int:
    result = build_app()(
        tokens, exit_on_error=False, print_error=False, result_action="return_value"
    )
    return result if isinstance(result, int) else 0
