"""All commands in one application, and how each of them ends.

Kept apart from `neve.cli`, which must import nothing slow: a person may interrupt a command before
all of it is loaded.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError

from neve import __version__
from neve.cli.extras import missing_extra
from neve.cli.names import check_text
from neve.cli.output import UsageError, complain
from neve.errors import NeveError

EXIT_FAILED, EXIT_USAGE, EXIT_PIPE = 1, 2, 141
COMMANDS = {
    "serve": ("serve:serve", "Serve Kafka clients from a bucket, until SIGTERM or SIGINT."),
    "topic": ("topic:app", "Make, look at, change, write and read topics, over Kafka's protocol."),
    "group": ("group:app", "Look at consumer groups, move their offsets, delete them."),
    "storage": ("storage:app", "Look into a bucket, check it and mend it; no broker takes part."),
    "lake": ("lake:app", "Fill Iceberg tables from topics, on Spark, without asking a broker."),
    "sql": ("sql:sql", "Ask topics and tables in SQL, on Spark; or serve PostgreSQL's clients."),
    "maintain": (
        "maintain:app",
        "Merge, expire, check and index partitions, beside live brokers.",
    ),
    "import": ("import_kafscale:app", "Bring topics of other systems in, where they lie."),
    "bench": ("bench:app", "Measure what Neve promises in figures; exit 1 where one is missed."),
    "demo": ("demo:demo", "Show the whole of Neve in a minute: broker, crash, tables, SQL."),
}
"""Where each command is, and its help: a command loads what it needs and no more."""


def build_app() -> App:
    """All commands."""
    app = App(
        name="neve",
        help="A Kafka-compatible streaming log whose only durable state is a bucket.",
        version=__version__,
        suppress_keyboard_interrupt=False,
        help_format="markdown",
    )
    for name, (where, about) in COMMANDS.items():
        app.command(f"neve.cli.{where}", name=name, help=about)
    return app


def run(tokens: list[str]) -> int:
    """Run a command; its exit code."""
    _fill_descriptors()
    if sys.stdout is None:
        complain("standard output is closed: open it, or send it to /dev/null")
        return EXIT_FAILED
    try:
        code = _called(tokens)
        sys.stdout.flush()
    except (CycloptsError, UsageError) as error:
        complain(f"{error} (see neve --help)")
        return EXIT_USAGE
    except NeveError as error:
        complain(error)
        return EXIT_FAILED
    except ModuleNotFoundError as error:
        hint = missing_extra(error)
        if hint is None:
            raise
        complain(hint)
        return EXIT_FAILED
    except BrokenPipeError:
        _drop_output()
        return EXIT_PIPE
    except OSError as error:
        # Stores tell their own troubles as kinds of NeveError: this is the output's, a full disk.
        complain(f"standard output cannot be written: {error.strerror or error}")
        _drop_output()
        return EXIT_FAILED
    return code


def _called(tokens: list[str]) -> int:
    if tokens[:1] in (["topic"], ["group"]):
        check_text(tokens)
    result = build_app()(
        tokens, exit_on_error=False, print_error=False, result_action="return_value"
    )
    return result if isinstance(result, int) else 0


def _fill_descriptors() -> None:
    """Where input or an output is closed, the next file or socket would take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this number
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (it stays open)


def _drop_output() -> None:
    """Python would complain once more when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
