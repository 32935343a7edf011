"""The limit of dead letters: beyond it, a pipeline counts as failed. Pure.

With a wrong format or schema every value becomes a dead letter, and nothing else fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from neve.errors import InvalidError

_LIMIT = re.compile(r"(\d+(?:\.\d+)?)(%?)")


@dataclass(frozen=True)
class DeadLetterLimit:
    """The maximum number or percentage of a topic's values that may be dead letters."""

    text: str
    count: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> DeadLetterLimit:
        """Parse `100` or `5%`. Raises InvalidError."""
        found = _LIMIT.fullmatch(text.strip())
        if found is None:
            raise InvalidError(f"{text!r} is not a limit: write a number, such as 100, or 5%")
        number, sign = found.groups()
        if sign:
            if float(number) > 100:
                raise InvalidError(f"{text!r} is not a limit: a share is at most 100%")
            return cls(text.strip(), percent=float(number))
        if "." in number:
            raise InvalidError(f"{text!r} is not a limit: write an integer, or a share such as 5%")
        return cls(text.strip(), count=int(number))

    def exceeded(self, rows: int, bad: int, *, values_least: int = 1) -> bool:
        """Return True if the limit is exceeded. A share needs at least `values_least` values."""
        if self.count is not None:
            return bad > self.count
        assert self.percent is not None
        return rows + bad >= values_least and bad * 100 > self.percent * (rows + bad)


def complaint(table: str, rows: int, bad: int, limit: DeadLetterLimit) -> str:
    """Return the error message for a table whose limit is exceeded."""
    return (
        f"{table}: {bad} of {rows + bad} values did not fit and are dead letters, more than "
        f"{limit.text} (--max-dead-letters): neve lake replay --dry-run gives the reasons; correct "
        "the value's format or schema in the pipeline's file, then run neve lake replay"
    )
