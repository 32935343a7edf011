"""Offsets that damage keeps from readers, and the command that gets readers past them."""

from __future__ import annotations

import shlex

from neve.errors import DamagedError

ANY_URL = "URL"
"""What stands for the bucket's address in a command where the address is not known."""


class UnreadableError(DamagedError):
    """A log's offsets from `first` up to, not including, `end` cannot be read any more."""

    def __init__(self, log_name: str, damage: DamagedError, first: int, end: int) -> None:
        self._topic, _, partition = log_name.rpartition("-")
        self._partition = int(partition)
        self._told = f"{damage.reason}. Offsets {first} to {end - 1} of {log_name} cannot be read"
        self.first = first
        self.end = end
        super().__init__(damage.key, self._reason(ANY_URL))

    def _reason(self, url: str) -> str:
        command = skip_command(url, self._topic, self._partition, self.first, self.end)
        return f"{self._told}. To give them up for lost: {command}"

    def within(self, url: str) -> DamagedError:
        """The same damage, told to somebody who has the bucket at this address."""
        return DamagedError(self.key, self._reason(url))


def skip_command(url: str, topic: str, partition: int, first: int, end: int) -> str:
    """The command that gives the offsets from `first` up to, not including, `end` up for lost."""
    return (
        f"neve storage skip {shlex.quote(url)} --topic {shlex.quote(topic)} "
        f"--partition {partition} --from {first} --to {end} --accept-loss"
    )


def told(damage: DamagedError, url: str) -> str:
    """What is damaged in the bucket at this address, and what to do about it."""
    if isinstance(damage, UnreadableError):
        return str(damage.within(url))
    return (
        f"{damage}. What it costs, and how to get past it: neve storage verify {shlex.quote(url)}"
    )
