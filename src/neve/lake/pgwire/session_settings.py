"""Settings of one session, for SHOW and SET.

Drivers set many of them. Most have no effect on a read-only engine and are only stored. Those that
would change the format of results are fixed: UTF-8 text, ISO dates, times in UTC.
"""

from __future__ import annotations

import re

from neve.lake.pgwire.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    UNDEFINED_OBJECT,
    SqlError,
)

SERVER_VERSION = "15.0"
"""The version of PostgreSQL whose catalogue is emulated. Clients choose their queries by it."""

_FIXED = {
    "datestyle": "ISO, MDY",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "server_encoding": "UTF8",
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
    "max_index_keys": "32",
    "max_identifier_length": "63",
    "block_size": "8192",
    "lc_collate": "C",
    "lc_ctype": "C",
    "in_hot_standby": "off",
    "default_transaction_read_only": "on",
    "transaction_read_only": "on",
    "is_superuser": "off",
    "ssl": "off",
}
_DEFAULTS = {
    "application_name": "",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "default_transaction_isolation": "read committed",
    "transaction_isolation": "read committed",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "row_security": "on",
    "search_path": '"$user", public',
    "statement_timeout": "0",
}
_REPORTED = {
    "application_name": "application_name",
    "client_encoding": "client_encoding",
    "datestyle": "DateStyle",
    "default_transaction_read_only": "default_transaction_read_only",
    "in_hot_standby": "in_hot_standby",
    "integer_datetimes": "integer_datetimes",
    "intervalstyle": "IntervalStyle",
    "is_superuser": "is_superuser",
    "server_encoding": "server_encoding",
    "server_version": "server_version",
    "session_authorization": "session_authorization",
    "standard_conforming_strings": "standard_conforming_strings",
    "timezone": "TimeZone",
}
_NAMES_MAX = 500
_VALUE_CHARACTERS_MAX = 10_000
_UTF8_NAMES = {"UTF8", "UTF-8", "UNICODE"}
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7, "": 1.0}


class SessionSettings:
    """Settings of one session. Names are case-insensitive."""

    def __init__(self, user: str, *, statement_timeout_ms: int = 0) -> None:
        self._initial = {**_FIXED, **_DEFAULTS, "session_authorization": user}
        self._initial["statement_timeout"] = str(statement_timeout_ms)
        self._statement_timeout_ms = statement_timeout_ms
        self._values = dict(self._initial)

    def startup(self, name: str, value: str) -> None:
        """Set a startup parameter. Fixed settings are ignored, as a notice would not be seen."""
        lowered = name.lower()
        if lowered == "client_encoding" or lowered not in _FIXED:
            self.set(name, value)

    def set(self, name: str, value: str) -> SqlError | None:
        """Set a value. Returns a warning if the setting is fixed to another value."""
        lowered = name.lower()
        if len(value) > _VALUE_CHARACTERS_MAX or len(lowered) > _VALUE_CHARACTERS_MAX:
            raise SqlError(
                INVALID_PARAMETER_VALUE,
                f'name or value of "{name[:60]}" is longer than {_VALUE_CHARACTERS_MAX} characters',
            )
        if lowered in _FIXED:
            return self._check_fixed(lowered, value)
        if lowered == "client_encoding":
            if value.strip("'\" ").upper() not in _UTF8_NAMES:
                raise SqlError(
                    FEATURE_NOT_SUPPORTED, f"client_encoding {value} is not supported: use UTF8"
                )
            value = "UTF8"
        if lowered == "statement_timeout":
            value = str(self._within_limit(milliseconds(value)))
        if lowered not in self._values and len(self._values) >= _NAMES_MAX:
            raise SqlError(
                INVALID_PARAMETER_VALUE,
                f'cannot set "{name[:60]}": the session has {_NAMES_MAX} settings, the maximum',
            )
        self._values[lowered] = value
        return None

    def _within_limit(self, requested_ms: int) -> int:
        """Return the smaller of the client's and the server's limit; 0 means no limit."""
        limit_ms = self._statement_timeout_ms
        return min(requested_ms or limit_ms, limit_ms) if limit_ms else requested_ms

    def _check_fixed(self, lowered: str, value: str) -> SqlError | None:
        kept = self._values[lowered]
        if value.lower().split(",")[0].strip() == kept.lower().split(",")[0].strip():
            return None
        return SqlError(
            "01000", f'"{lowered}" is fixed to {kept} on this server', severity="WARNING"
        )

    def reset(self, name: str) -> None:
        lowered = name.lower()
        if lowered == "all":
            self._values = dict(self._initial)
        elif lowered in self._initial:
            self._values[lowered] = self._initial[lowered]
        else:
            self._values.pop(lowered, None)

    def show(self, name: str) -> str:
        value = self._values.get(name.lower())
        if value is None:
            raise SqlError(
                UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name.lower()}"'
            )
        return value

    def known(self, name: str) -> bool:
        return name.lower() in self._values

    def all(self) -> dict[str, str]:
        return dict(sorted(self._values.items()))

    def reported(self) -> dict[str, str]:
        """Return the settings that are sent to clients at the start and after each change."""
        return {shown: self._values[name] for name, shown in _REPORTED.items()}

    @property
    def statement_seconds(self) -> float:
        return int(self._values["statement_timeout"]) / 1000


def milliseconds(value: str) -> int:
    """Parse a time-out in PostgreSQL's format: `500`, `30s`, `5 min`."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]*)\s*", value)
    if value.strip().lower() == "default":
        return 0
    if match is None or match[2] not in _UNITS_MS:
        raise SqlError(
            INVALID_PARAMETER_VALUE, f'invalid value for parameter "statement_timeout": "{value}"'
        )
    return min(2**31 - 1, round(float(match[1]) * _UNITS_MS[match[2]]))
