"""What clients of a simulated cluster were told, and whether later answers keep it."""

from __future__ import annotations

from collections.abc import Hashable

from neve.protocol.codes import ErrorCode
from simulation.checker import Checker, ViolationError
from simulation.network_plan import Report


class StalledError(AssertionError):
    """Something took too long. It breaks no promise about records."""


class Promises:
    """Collects what clients were told. The first broken promise is kept, and ends the run."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.checker = Checker()
        self.failure: BaseException | None = None
        self.ends: dict[Hashable, int] = {}  # the least end that any later answer may name
        self.commits: dict[tuple[str, int], int] = {}  # the least offset of a group's partition

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure

    def violated(self, what: str) -> None:
        self.fail(ViolationError(what))

    def check(self) -> None:
        """Raise the first failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def unexpected(self, about: str, code: int) -> None:
        self.violated(f"{about}: unexpected {ErrorCode(code).name}")

    # -- ends of partitions ------------------------------------------------------------------

    def has_reached(self, partition: Hashable, end: int) -> None:
        """Somebody knows that the log of a partition has offsets up to `end`."""
        self.ends[partition] = max(end, self.ends.get(partition, 0))

    def answered_end(self, partition: Hashable, known: int, answered: int) -> None:
        """A broker named an end. `known` is what was known when it was asked."""
        if answered < known:
            self.violated(f"partition {partition}: the end is {answered}, after {known} was known")
        self.has_reached(partition, answered)

    # -- records ---------------------------------------------------------------------------------

    def was_read(self, partition: Hashable, asked: int, records: list[tuple[int, bytes]]) -> int:
        """A consumer that asked for an offset was shown these records. Returns its next offset."""
        expected = asked
        for offset, value in records:
            if offset < asked:  # the batch began below the offset
                self.checker.saw(partition, offset, value)
                continue
            if offset != expected:
                self.violated(f"partition {partition}: {offset} was delivered, not {expected}")
            self.checker.saw(partition, offset, value)
            expected = offset + 1
        self.has_reached(partition, expected)
        return expected

    # -- committed offsets of groups -----------------------------------------------------------

    def committed(self, group: str, partition: int, offset: int) -> None:
        at = (group, partition)
        self.commits[at] = max(offset, self.commits.get(at, -1))

    def answered_commit(self, group: str, partition: int, known: int, answered: int) -> None:
        """A coordinator named a committed offset. `known` is what was known when it was asked."""
        if answered < known:
            self.violated(
                f"group {group} partition {partition}: {answered} is committed, after {known} was"
            )
        self.committed(group, partition, answered)

    def known_commit(self, group: str, partition: int) -> int:
        return self.commits.get((group, partition), -1)
