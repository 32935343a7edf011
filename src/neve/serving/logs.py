"""Log lines of a serving process on standard error: one line per event, as text or as JSON.

The message of a NeveError is complete, so its traceback is logged only at level debug. Other
exceptions are bugs and keep it. `event` logs an event with fields, which become members of the JSON
object. Events of one kind are limited to `EVENTS_MAX` per `log.repeat.ms`. `Repeated` logs warnings
that clients can cause at will (a bad frame, a refused connection) once per `log.repeat.ms` and
subject, with a count of those left out.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import sys
from collections import OrderedDict
from typing import Any, TextIO

from neve import runtime
from neve.errors import NeveError
from neve.settings import LogSettings
from neve.settings.masking import masked

SUBJECTS_REMEMBERED_MAX = 1_000
"""Subjects with a count of repeated warnings; the least recently used is forgotten first."""

EVENTS_MAX = 20
"""Lines of one kind of event per `log.repeat.ms`. Warnings and errors: one line."""
FIELD_CHARACTERS_MAX = 256
"""Longer field values are cut: clients choose some of them."""

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PLAIN = re.compile(r"[\w.:/+@-]+")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send all loggers to standard error, in the format and from the level of the settings."""
    # A closed log pipe must not become a second failure.
    logging.raiseExceptions = False
    level = _LEVELS[settings.level]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter(settings))
    handler.addFilter(_EventLimit(settings.repeat_ms / 1000))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # asyncio's debug lines are not about Neve.
    logging.getLogger("asyncio").setLevel(max(level, logging.WARNING))


def formatter(settings: LogSettings) -> logging.Formatter:
    """Return the formatter for `log.format`."""
    kind = JsonLines if settings.format == "json" else TextLines
    return kind(with_tracebacks=_LEVELS[settings.level] <= logging.DEBUG)


def time_text(at_ms: int) -> str:
    """Format a timestamp as in every log line: `2026-01-31T12:00:00.000Z`."""
    return runtime.wall_from_ms(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event(log: logging.Logger, level: int, what: str, **fields: object) -> None:
    """Log an event with its fields. `what` must be a constant: it names the kind of event."""
    if log.isEnabledFor(level):
        log.log(level, what, extra={"fields": fields})


class _Window:
    """The lines of one kind of event since `started_at`."""

    __slots__ = ("left_out", "lines", "started_at")

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.lines = 0
        self.left_out = 0


class _EventLimit(logging.Filter):
    """Limits the lines per kind of event and window of time, and counts those left out."""

    def __init__(self, pause_seconds: float) -> None:
        super().__init__()
        self._pause_seconds = pause_seconds
        self._windows: dict[tuple[str, str], _Window] = {}  # bounded: kinds are constants

    def filter(self, record: logging.LogRecord) -> bool:
        fields = _fields(record)
        if fields is None:
            return True
        now = runtime.monotonic()
        kind = (record.name, record.msg)
        window = self._windows.get(kind)
        if window is None or now - window.started_at >= self._pause_seconds:
            if window is not None and window.left_out:
                record.fields = {**fields, "left_out": window.left_out}
            window = self._windows[kind] = _Window(now)
        window.lines += 1
        if window.lines > (1 if record.levelno >= logging.WARNING else EVENTS_MAX):
            window.left_out += 1
            return False
        return True


def _fields(record: logging.LogRecord) -> dict[str, object] | None:
    return getattr(record, "fields", None)


def _cut(value: object) -> object:
    return value[:FIELD_CHARACTERS_MAX] if isinstance(value, str) else value


class _Lines(logging.Formatter):
    """Base of both formats: the time, the message, and when to add a traceback."""

    def __init__(self, *, with_tracebacks: bool) -> None:
        super().__init__()
        self._with_tracebacks = with_tracebacks

    def time_of(self, record: logging.LogRecord) -> str:
        return time_text(int(record.created * 1000))

    def traceback_of(self, record: logging.LogRecord) -> str:
        """Return the traceback if it should be logged; empty otherwise."""
        if not record.exc_info or record.exc_info[1] is None:
            return ""
        if isinstance(record.exc_info[1], NeveError) and not self._with_tracebacks:
            return ""
        return self.formatException(record.exc_info)

    def message_of(self, record: logging.LogRecord) -> str:
        """Return the message on one line, with the error's text unless it contains it."""
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and str(error) not in text:
            text = f"{text}: {error}"
        return " ".join(text.splitlines())


class TextLines(_Lines):
    """Lines like `2026-01-31T12:00:00.000Z WARNING neve.broker: what happened field=value`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.time_of(record)} {record.levelname} {record.name}: {self.message_of(record)}"
        for name, value in (_fields(record) or {}).items():
            line += f" {name}={_shown(_cut(value))}"
        trace = self.traceback_of(record)
        return masked(f"{line}\n{trace}" if trace else line)


def _shown(value: object) -> str:
    """Return the value as text, quoted if it contains more than plain characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if _PLAIN.fullmatch(text) else json.dumps(value, ensure_ascii=False, default=str)


class JsonLines(_Lines):
    """One JSON object per line: time, level, logger, message, fields, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": self.time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.message_of(record),
        }
        fields |= {name: _cut(value) for name, value in (_fields(record) or {}).items()}
        trace = self.traceback_of(record)
        if trace:
            fields["traceback"] = trace
        return masked(json.dumps(fields, ensure_ascii=False, default=str))


class _Seen:
    __slots__ = ("left_out", "written_at")

    def __init__(self, written_at: float) -> None:
        self.written_at = written_at
        self.left_out = 0


class Repeated:
    """Warnings that peers can cause at will: one per subject and `log.repeat.ms`."""

    def __init__(self, logger: logging.Logger, settings: LogSettings) -> None:
        self._logger = logger
        self._pause_seconds = settings.repeat_ms / 1000
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    def warning(self, peer: str, subject: str, message: str) -> None:
        """Log the warning, or count it if the subject was logged recently.

        The peer is not part of the subject: a client with many addresses must not fill the log.
        """
        now = runtime.monotonic()
        seen = self._seen.get(subject)
        if seen is not None and now - seen.written_at < self._pause_seconds:
            seen.left_out += 1
            self._seen.move_to_end(subject)
            return
        left_out = seen.left_out if seen is not None else 0
        self._seen[subject] = _Seen(now)
        self._seen.move_to_end(subject)
        if len(self._seen) > SUBJECTS_REMEMBERED_MAX:
            self._seen.popitem(last=False)
        more = f" (and {left_out} more like it)" if left_out else ""
        self._logger.warning("%s: %s%s", peer, message, more)

    def log_accept_failures(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log failures to accept connections here, because the event loop repeats them."""

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            failure = context.get("exception")
            if isinstance(failure, OSError) and failure.errno in _OUT_OF_RESOURCES:
                reason = os.strerror(failure.errno)
                self.warning("a client", "accept", f"cannot accept its connection: {reason}")
            else:
                loop.default_exception_handler(context)

        loop.set_exception_handler(handle)
