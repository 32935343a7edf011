"""All commands in one application, and their exit codes.

Separate from `neve.cli`, which must not import slow modules: it has to handle Ctrl-C while a
command is still loading.
"""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError

from neve import __version__
from neve.cli.extras import missing_extra
from neve.cli.name_validation import check_utf8
from neve.cli.output import UsageError, complain
from neve.errors import NeveError

EXIT_FAILED, EXIT_USAGE, EXIT_PIPE = 1, 2, 141
COMMANDS = {
    "serve": ("serve:serve", "Serve Kafka clients from a bucket, until SIGTERM or SIGINT."),
    "cluster": ("cluster:app", "Show the brokers of a bucket; drain and remove brokers."),
    "topic": ("topic:app", "Create, describe, alter, delete, write and read topics."),
    "group": ("group:app", "Describe consumer groups, reset their offsets, delete them."),
    "storage": ("storage:app", "Inspect, verify and repair a bucket without a broker."),
    "lake": ("lake:app", "Write topics to Iceberg tables with Spark, without a broker."),
    "sql": ("sql:sql", "Query topics and tables with Spark SQL, or serve PostgreSQL clients."),
    "maintain": (
        "maintain:app",
        "Merge, expire, verify and index partitions while brokers are running.",
    ),
    "import": ("import_kafscale:app", "Import topics of other systems in place."),
    "bench": ("bench:app", "Run benchmarks. Exit code 1 if a target is missed."),
    "demo": ("demo:demo", "Show Neve in a minute: broker, crash, recovery, tables, SQL."),
}
"""The module and the help of each command. Only the module of the called command is loaded."""


def build_app() -> App:
    """Return the application with all commands."""
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
    """Run a command. Returns its exit code."""
    _fill_descriptors()
    if sys.stdout is None:
        complain("standard output is closed: open it, or redirect it to /dev/null")
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
        # Store failures are NeveErrors. This one is about standard output, such as a full disk.
        complain(f"cannot write to standard output: {error.strerror or error}")
        _drop_output()
        return EXIT_FAILED
    return code


def _called(tokens: list[str]) -> int:
    if tokens[:1] in (["topic"], ["group"]):
        check_utf8(tokens)
    result = build_app()(
        tokens, exit_on_error=False, print_error=False, result_action="return_value"
    )
    return result if isinstance(result, int) else 0


def _fill_descriptors() -> None:
    """Open closed standard descriptors, or the next file or socket would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (it stays open)


def _drop_output() -> None:
    """Discard further output: Python would report the closed pipe again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
