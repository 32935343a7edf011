"""Errors in PostgreSQL's form: SQLSTATE, message, hint and position.

Only this module maps errors to SQLSTATEs. An error of the engine that has a SQLSTATE of its own, as
Spark's errors do, keeps it.
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
DUPLICATE_CURSOR = "42P03"
DUPLICATE_STATEMENT = "42P05"
TOO_MANY_CONNECTIONS = "53300"
LIMIT_EXCEEDED = "53400"
PROGRAM_LIMIT = "54000"
QUERY_CANCELED = "57014"
ADMIN_SHUTDOWN = "57P01"
CRASH_SHUTDOWN = "57P02"
CANNOT_CONNECT_NOW = "57P03"
IO_ERROR = "58030"
INTERNAL = "XX000"

_MESSAGE_CHARACTERS_MAX = 8_000
"""Spark's messages can contain a whole plan, after the part that matters."""


@dataclass
class SqlError(Exception):
    """An error or a notice that is sent to the client."""

    code: str
    message: str
    hint: str = ""
    position: int = 0
    """Position in the statement, in characters from 1; 0 if unknown."""
    severity: str = "ERROR"
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def fatal(code: str, message: str, hint: str = "") -> SqlError:
    """Create an error after which the connection is closed."""
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
    """Convert an exception of the engine to the error that is sent to the client."""
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
    """Return the SQLSTATE of an error: an attribute of ours, a method of Spark's; else empty."""
    given = getattr(failure, "sqlstate", None)
    ask = getattr(failure, "getSqlState", None)
    if not given and callable(ask):
        try:
            given = ask()
        except Exception:  # a broken bridge to the JVM must not hide the error itself
            given = None
    text = str(given or "")
    return text if len(text) == 5 and text.isalnum() and text.isascii() else ""


def _position_of(failure: BaseException) -> int:
    for each in _causes(failure):
        position = getattr(each, "position", None)
        if isinstance(position, int) and position > 0:
            return position
    return 0
