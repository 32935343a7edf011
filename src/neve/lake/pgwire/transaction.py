"""The transaction state that clients are told: nothing is ever written, but the words must fit."""

from __future__ import annotations

from neve.lake.pgwire.sqlstate import ACTIVE_TRANSACTION, NO_TRANSACTION, SqlError


class Transaction:
    """Idle, in a block, or in a block that has failed."""

    def __init__(self) -> None:
        self.is_open = False
        self.has_failed = False

    @property
    def status(self) -> bytes:
        if not self.is_open:
            return b"I"
        return b"E" if self.has_failed else b"T"

    def begin(self) -> SqlError | None:
        """Returns the warning that PostgreSQL gives when there is one already."""
        if self.is_open:
            return SqlError(
                ACTIVE_TRANSACTION, "there is already a transaction in progress", severity="WARNING"
            )
        self.is_open = True
        return None

    def end(self) -> SqlError | None:
        was_open, self.is_open, self.has_failed = self.is_open, False, False
        if was_open:
            return None
        return SqlError(NO_TRANSACTION, "there is no transaction in progress", severity="WARNING")

    def fail(self) -> None:
        self.has_failed = self.is_open

    def recover(self) -> None:
        """ROLLBACK TO a savepoint."""
        self.has_failed = False
