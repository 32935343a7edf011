"""Output of commands: JSON, tables, progress and error lines; and the flags that they share."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from neve import runtime
from neve.errors import InvalidError
from neve.settings import Settings, load
from neve.settings.masking import masked

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PROGRESS_AFTER_SECONDS = 2.0
"""A progress bar appears after this time."""


STANDARD_INPUT = 0
"""The descriptor of standard input. `sys.stdin` is None if it was closed."""


class UsageError(InvalidError):
    """Invalid flags or settings, or an invalid combination: exit code 2."""


@contextlib.contextmanager
def reading_settings() -> Iterator[None]:
    """Raise UsageError (exit code 2) for an invalid setting from any source."""
    try:
        yield
    except UsageError:
        raise
    except InvalidError as error:
        raise UsageError(str(error)) from error


@Parameter(name="*")
@dataclass(frozen=True)
class SettingsFlags:
    """The flags for settings. `load` adds those of the environment."""

    config: Annotated[
        Path | None, Parameter(help="A TOML file with settings (docs/operators/configure.md).")
    ] = None
    assignments: Annotated[
        list[str],
        Parameter(name="--set", negative="", help="A setting as name=value. Repeatable."),
    ] = field(default_factory=list)

    def load(self) -> Settings:
        """Load the settings from file, environment and flags; later ones take precedence."""
        given: dict[str, object] = {}
        for assignment in self.assignments:
            name, separator, value = assignment.partition("=")
            if not separator:
                raise UsageError(f"--set {assignment}: must be name=value")
            if name.strip() in given:
                raise UsageError(f"--set {name.strip()} is given twice: remove one")
            given[name.strip()] = value.strip()
        with reading_settings():
            return load(file=self.config, environment=os.environ, flags=given)


DEFAULT_FLAGS = SettingsFlags()


def complain(reason: object) -> None:
    """Print one line to standard error."""
    text = masked(" ".join(str(reason).split()))
    with contextlib.suppress(BrokenPipeError):
        print(f"neve: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def naming(url: str) -> Iterator[None]:
    """Add the URL to the error for a bucket without a cluster: it is often misspelled."""
    from neve.cluster.log import NoClusterError  # slow to import, and rarely needed

    try:
        yield
    except NoClusterError as error:
        raise NoClusterError(f"{url}: {error}") from error


def write_json(value: Any) -> None:
    """Print one indented JSON document."""
    write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def flush() -> None:
    sys.stdout.buffer.flush()


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns, numbers to the right. Nothing is cut off."""
    texts = [[str(cell) for cell in row] for row in rows]
    columns = range(len(titles))
    widths = [max([len(titles[c]), *(len(row[c]) for row in texts)]) for c in columns]
    right = [bool(rows) and all(isinstance(row[c], int) for row in rows) for c in columns]

    def line(cells: Sequence[str]) -> str:
        placed = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        return "  ".join(placed).rstrip()

    print(line([title.upper() for title in titles]))
    for row in texts:
        print(line(row))


def human_bytes(count: int) -> str:
    """Format a size with a unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


class Bar:
    """A progress bar on standard error, if it is a terminal, for work that takes some time."""

    def __init__(self, title: str, *, hidden: bool = False) -> None:
        self._title = title
        self._started_at = runtime.monotonic()
        self._silent = hidden or not sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def show(self, done: int, total: int | None = None) -> None:
        """Update the bar. Cheap if it is hidden."""
        if self._silent:
            return
        if self._progress is None:
            if runtime.monotonic() - self._started_at < PROGRESS_AFTER_SECONDS:
                return
            self._start()
        assert self._progress is not None
        assert self._task is not None
        self._progress.update(self._task, completed=done, total=total)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(self._title, total=None)
        self._progress.start()

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


@contextlib.contextmanager
def progress(title: str, *, hidden: bool = False) -> Iterator[Bar]:
    """Show a progress bar during a `with` statement."""
    bar = Bar(title, hidden=hidden)
    try:
        yield bar
    finally:
        bar.stop()


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()
