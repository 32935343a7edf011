"""Errors as PostgreSQL's clients expect them: a SQLSTATE, a message, a hint, a position.

This is the one file that knows the codes. An error of the engine that brings its own SQLSTATE
(Spark's do) keeps it; other kinds are mapped here.
"""

from __future__ import annotations

from dataclasses import dataclass

from neve import errors
from neve.settings.masking import masked

PROTOCOL_VIOLATION = "08P01"
FEATURE_NOT_SUPPORTED = "0A000"
INVALID_TEXT = "22P02"
INVALID_BINARY = "22P03"
INVALID_PARAMETER_VALUE = "22023"
ACTIVE_TRANSACTION = "25001"
NO_TRANSACTION = "25P01"
FAILED_TRANSACTION = "25P02"
INVALID_STATEMENT_NAME = "26000"
INVALID_AUTHORIZATION = "28000"
INVALID_PASSWORD = "28P01"  # noqa: S105
INVALID_CURSOR_NAME = "34000"
SYNTAX_ERROR = "42601"
UNDEFINED_OBJECT = "42704"
UNDEFINED_TABLE = "42P01"
UNDEFINED_PARAMETER = "42P02"
DUPLICATE_CURSOR = "42P03"
DUPLICATE_STATEMENT = "42P05"
INDETERMINATE = "42P18"
TOO_MANY_CONNECTIONS = "53300"
LIMIT_EXCEEDED = "53400"
PROGRAM_LIMIT = "54000"
NOT_IN_STATE = "55000"
QUERY_CANCELED = "57014"
ADMIN_SHUTDOWN = "57P01"
CRASH_SHUTDOWN = "57P02"
CANNOT_CONNECT_NOW = "57P03"
IO_ERROR = "58030"
INTERNAL = "XX000"

_MESSAGE_CHARACTERS_MAX = 8_000
"""Spark's messages may carry a whole plan; what a person reads comes first."""


@dataclass
class SqlError(Exception):
    """One error, or one notice, for the wire."""

    code: str
    message: str
    hint: str = ""
    position: int = 0
    """Character of the statement that it is about, from 1; 0 where none is."""
    severity: str = "ERROR"
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def fatal(code: str, message: str, hint: str = "") -> SqlError:
    """An error after which the connection is closed."""
    return SqlError(code, message, hint, severity="FATAL")


_KINDS: list[tuple[type[BaseException], str]] = [
    (errors.UnsupportedError, FEATURE_NOT_SUPPORTED),
    (errors.InvalidError, "42000"),
    (errors.NotFoundError, UNDEFINED_TABLE),
    (errors.DamagedError, "XX001"),
    (errors.LostRangeError, "XX001"),
    (errors.FullError, LIMIT_EXCEEDED),
    (errors.ClosedError, CANNOT_CONNECT_NOW),
    (errors.DeniedError, "42501"),
    (errors.StoreError, IO_ERROR),
    (TimeoutError, QUERY_CANCELED),
    (MemoryError, "53200"),
]
_NAMES = {
    "ParseException": SYNTAX_ERROR,
    "ParseError": SYNTAX_ERROR,
    "AnalysisException": "42000",
}


def from_exception(failure: BaseException) -> SqlError:
    """What to tell a client about an error that came out of the engine."""
    if isinstance(failure, SqlError):
        return failure
    message = masked(str(failure) or type(failure).__name__)[:_MESSAGE_CHARACTERS_MAX]
    return SqlError(
        _code_of(failure),
        message.replace("\0", ""),
        hint=str(getattr(failure, "hint", "") or ""),
        position=_position_of(failure),
    )


def _causes(failure: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    here: BaseException | None = failure
    while here is not None and here not in found:
        found.append(here)
        here = here.__cause__
    return found


def _code_of(failure: BaseException) -> str:
    for each in _causes(failure):
        own = _own_code(each)
        if own:
            return own
        if type(each).__name__ in _NAMES:
            return _NAMES[type(each).__name__]
    for kind, code in _KINDS:
        if isinstance(failure, kind):
            return code
    return INTERNAL


def _own_code(failure: BaseException) -> str:
    """The SQLSTATE that an error carries: ours as an attribute, Spark's behind a call."""
    given = getattr(failure, "sqlstate", None)
    ask = getattr(failure, "getSqlState", None)
    if not given and callable(ask):
        try:
            given = ask()
        except Exception:  # a broken bridge to the engine is no reason to lose the error itself
            given = None
    text = str(given or "")
    return text if len(text) == 5 and text.isalnum() and text.isascii() else ""


def _position_of(failure: BaseException) -> int:
    for each in _causes(failure):
        position = getattr(each, "position", None)
        if isinstance(position, int) and position > 0:
            return position
    return 0
