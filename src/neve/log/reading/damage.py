"""Offsets that are unreadable because of damage, and the command that lets readers continue."""

from __future__ import annotations

import shlex

from neve.errors import DamagedError

ANY_URL = "URL"
"""The placeholder in a command for a bucket whose address is not known."""


class UnreadableError(DamagedError):
    """Offsets of a log from `first` up to, not including, `end` cannot be read any more."""

    def __init__(self, log_name: str, damage: DamagedError, first: int, end: int) -> None:
        self._topic, _, partition = log_name.rpartition("-")
        self._partition = int(partition)
        self._what = f"{damage.reason}. Offsets {first} to {end - 1} of {log_name} cannot be read"
        self.first = first
        self.end = end
        super().__init__(damage.key, self._reason(ANY_URL))

    def _reason(self, url: str) -> str:
        command = skip_command(url, self._topic, self._partition, self.first, self.end)
        return f"{self._what}. To give them up for lost: {command}"

    def within(self, url: str) -> DamagedError:
        """Return the same error with the bucket's address in its command."""
        return DamagedError(self.key, self._reason(url))


def skip_command(url: str, topic: str, partition: int, first: int, end: int) -> str:
    """Return the command that gives up the offsets from `first` up to, not including, `end`."""
    return (
        f"neve storage skip {shlex.quote(url)} --topic {shlex.quote(topic)} "
        f"--partition {partition} --from {first} --to {end} --accept-loss"
    )


def explain(damage: DamagedError, url: str) -> str:
    """Return what is damaged in the bucket at this address, and what to do about it."""
    if isinstance(damage, UnreadableError):
        return str(damage.within(url))
    verify = f"neve storage verify {shlex.quote(url)}"
    return f"{damage}. To list the lost offsets and the commands that skip them: {verify}"
