"""Where an offset lies: in a slice of the tail, or in a listed segment.

Objects move under a reader: records are tiered, rolled up, merged and expired while it reads. An
object that is gone therefore means: read the newest manifest and look again. Only what is still
where it was not found is lost.
"""

from __future__ import annotations

from neve.errors import DamagedError, LostRangeError, NotFoundError
from neve.log.held import HeldSlice
from neve.log.manifest.records import Segment
from neve.log.reading.chunk import ReadableLog
from neve.log.reading.recent import row_holding

# A reader that finds objects gone each time it looks gives up after so many looks.
LOOKS_MAX = 20


class NowhereError(NotFoundError):
    """No listed object holds an offset: lost, unless the list is older than it is."""


async def locate(log: ReadableLog, offset: int) -> HeldSlice | Segment:
    """What holds `offset`, which lies within the log. NowhereError: look again."""
    if offset >= log.tiered_offset:
        row = row_holding(log.tail, offset)
        if row is not None:
            return row
    else:
        segments = await log.manifest.segments(offset, offset)
        if segments:
            return segments[0]
    raise NowhereError(log.name, f"nothing holds offset {offset}")


class Looks:
    """One read's looks at a log whose objects were not where they were thought to be."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        self._gone: list[str] = []

    async def again(self, offset: int, missing: NotFoundError) -> None:
        """Find out where things are now; raises where something is lost for good."""
        log = self._log
        again = missing.key in self._gone or len(self._gone) >= LOOKS_MAX
        await log.manifest.refresh()
        row = row_holding(log.tail, offset)
        if again and (row is None or row.held.key == missing.key or offset < log.tiered_offset):
            raise _lost(log, offset, missing)
        self._gone.append(missing.key)
        if row is not None and row.held.key == missing.key and offset >= log.tiered_offset:
            # Somebody's checkpoint, or a late one of ours, moved it: look where it is now.
            await log.untiered.resolve(row.held.incarnation)


def _lost(log: ReadableLog, offset: int, missing: NotFoundError) -> Exception:
    if isinstance(missing, NowhereError):
        return LostRangeError(
            f"{log.name}: neither a segment nor a stream has offset {offset}: run "
            "`neve storage verify`"
        )
    return DamagedError(
        missing.key,
        f"it is listed, and it is not there. Offset {offset} of {log.name} cannot be read: `neve "
        "storage verify` tells what else is lost, `neve storage skip` gets readers past it",
    )


def explained(log: ReadableLog, damage: DamagedError, first: int, end: int) -> DamagedError:
    """The damage, with the offsets it costs and the command that gets readers past them."""
    topic, _, partition = log.name.rpartition("-")
    first = max(first, log.start_offset)
    return DamagedError(
        damage.key,
        f"{damage.reason}. Offsets {first} to {end - 1} of {log.name} cannot be read. `neve "
        f"storage verify` tells more; `neve storage skip --topic {topic} --partition {partition} "
        f"--from {first} --to {end}` gives them up for lost",
    )
