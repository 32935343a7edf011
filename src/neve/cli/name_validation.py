"""Validation of topic and group names before librdkafka receives them.

librdkafka aborts the process for some names, such as an empty group id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neve.cli.output import UsageError

NAME_BYTES_MAX = 2**15 - 1
"""A name's length is a short integer in Kafka's protocol."""


def name_validator(kind: str) -> Callable[[object, str | list[str] | None], None]:
    """Return a validator for one or several names of this kind."""

    def check(_: object, given: str | list[str] | None) -> None:
        for name in [given] if isinstance(given, str) else given or []:
            size = len(name.encode())
            if not size:
                raise UsageError(f"the {kind} name is empty: give one")
            if size > NAME_BYTES_MAX:
                raise UsageError(
                    f"the {kind} name has {size} bytes; the maximum is {NAME_BYTES_MAX}"
                )

    return check


def check_utf8(tokens: Iterable[str]) -> None:
    """Raise UsageError for arguments that are not UTF-8: Kafka's protocol cannot carry them."""
    for token in tokens:
        try:
            token.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{token!a} is not UTF-8: write it in that encoding") from None
