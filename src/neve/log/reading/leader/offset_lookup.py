"""Finds the object that holds an offset of a led log, and resolves again if an object is gone."""

from __future__ import annotations

from neve.errors import DamagedError, NeveError, NotFoundError
from neve.log.reading.damage import UnreadableError
from neve.log.reading.gone_objects import GoneObjects, NowhereError, final_error
from neve.log.reading.leader.readable_log import ReadableLog
from neve.log.reading.leader.recent import row_holding
from neve.log.reading.spans import Span, spans_within


async def locate(log: ReadableLog, offset: int) -> Span:
    """Return the span from `offset` to the end of the segment or slice that holds it.

    The offset must be within the log. Raises NowhereError if nothing holds it: resolve again.
    """
    end = log.high_watermark
    if offset >= log.tiered_offset:
        row = row_holding(log.tail, offset)
        found = spans_within(offset, end, (), () if row is None else (row,))
    else:
        found = spans_within(offset, end, await log.manifest.segments(offset, offset), ())
    span = next(found, None)
    if span is None:
        raise NowhereError([(offset, offset + 1)])
    return span


class LookupRetries:
    """Resolves a log again for one read that found an object gone."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        self._gone = GoneObjects()

    async def again(self, offset: int, missing: NotFoundError) -> None:
        """Find out where the log's objects are now. Raises if the offset is lost for good."""
        log = self._log
        final = self._gone.is_final(missing)
        await log.manifest.refresh()
        row = row_holding(log.tail, offset)
        if final and (row is None or row.key == missing.key or offset < log.tiered_offset):
            raise await _final_error(log, offset, missing)
        self._gone.note(missing)
        if row is not None and row.key == missing.key and offset >= log.tiered_offset:
            # A checkpoint, of another process or a late one of ours, moved the slice.
            await log.untiered.resolve(row.cached.incarnation)


async def _final_error(log: ReadableLog, offset: int, missing: NotFoundError) -> NeveError:
    if isinstance(missing, NowhereError):
        return final_error(log.name, missing, still_listed=False)
    span = await locate(log, offset)
    error = final_error(log.name, missing, still_listed=span.key == missing.key)
    return unreadable(log, error, *span.offsets) if isinstance(error, DamagedError) else error


def unreadable(log: ReadableLog, damage: DamagedError, first: int, end: int) -> UnreadableError:
    """Return the damage with the offsets that it costs readers of the log."""
    return UnreadableError(log.name, damage, max(first, log.start_offset), end)
