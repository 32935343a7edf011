"""Where an offset lies: in a slice of the tail, or in a listed segment.

Objects move under a reader: records are tiered, rolled up, merged and expired while it reads. An
object that is gone therefore means: read the newest manifest and look again. Only what is still
where it was not found is lost.
"""

from __future__ import annotations

from neve.errors import DamagedError, LostRangeError, NotFoundError, UnavailableError
from neve.log.cached_slice import CachedSlice
from neve.log.manifest.records import Segment
from neve.log.reading.chunk import ReadableLog
from neve.log.reading.damage import UnreadableError
from neve.log.reading.recent import row_holding

# A reader that finds objects gone each time it looks gives up after so many looks.
LOOKS_MAX = 20


class NowhereError(NotFoundError):
    """No listed object holds an offset: lost, unless the list is older than it is."""


async def locate(log: ReadableLog, offset: int) -> CachedSlice | Segment:
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


class LookupRetries:
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
            raise await _lost(log, offset, missing)
        self._gone.append(missing.key)
        if row is not None and row.held.key == missing.key and offset >= log.tiered_offset:
            # Somebody's checkpoint, or a late one of ours, moved it: look where it is now.
            await log.untiered.resolve(row.held.incarnation)


async def _lost(log: ReadableLog, offset: int, missing: NotFoundError) -> Exception:
    if isinstance(missing, NowhereError):
        return LostRangeError(
            f"{log.name}: neither a segment nor a stream has offset {offset}: run "
            "`neve storage verify`"
        )
    damage = DamagedError(missing.key, "it is listed, and it is not there")
    place = await locate(log, offset)
    if isinstance(place, Segment):
        key, first, last = place.key, place.base, place.last
    else:
        key, first, last = place.held.key, place.entry.base_offset, place.entry.last_offset
    if key != missing.key:
        return UnavailableError(key, f"{log.name} is moved faster than offset {offset} is read")
    return unreadable(log, damage, first, last + 1)


def unreadable(log: ReadableLog, damage: DamagedError, first: int, end: int) -> UnreadableError:
    """The damage, with those of these offsets that readers could ask for."""
    return UnreadableError(log.name, damage, max(first, log.start_offset), end)
