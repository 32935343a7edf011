"""Names of topics and groups, looked at before a client's library sees them.

librdkafka, which is written in C, ends the process at some of them: at an empty group's name, for
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neve.cli.output import UsageError

NAME_BYTES_MAX = 2**15 - 1
"""A name's length is a short integer in Kafka's protocol."""


def named(kind: str) -> Callable[[object, str | list[str] | None], None]:
    """A validator of the names of such things, one or several."""

    def check(_: object, given: str | list[str] | None) -> None:
        for name in [given] if isinstance(given, str) else given or []:
            size = len(name.encode())
            if not size:
                raise UsageError(f"the {kind}'s name is empty: give one")
            if size > NAME_BYTES_MAX:
                raise UsageError(
                    f"the {kind}'s name has {size} bytes: give one of {NAME_BYTES_MAX} at most"
                )

    return check


def check_text(tokens: Iterable[str]) -> None:
    """Refuse what is no text: all that Kafka's protocol has of a command line is UTF-8."""
    for token in tokens:
        try:
            token.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{token!a} is not UTF-8: write it in that encoding") from None
