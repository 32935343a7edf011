"""Staying below the memory that a broker may take up.

What is held is bounded part by part, and freed memory is kept for the next use, which may find no
place of its size among it. Free but fragmented memory can so push a process towards its bound. Then
it is given back to the system. That costs fresh pages afterwards, so it is not done before, and for
a while not again, nor before the process has grown, unless it is past its bound: what was in use
then may be free by now, and does not show. A process that grows again until it is about to pass its
bound does not wait for that while to end.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime
from neve.settings import MIB
from neve.store.aligned_buffers import give_back_free_mappings

LOOK_SECONDS = 0.25
REST_SECONDS = 10.0
NEAR_SHARE = 0.9
PRESSING_SHARE = 0.97
GROWN_BYTES = 16 * MIB
REGROWN_BYTES = 4 * MIB
"""Growth since memory was last given back that makes it worth doing again while it rests."""


def give_back_free() -> None:
    """Give the system what is kept for the next use: mappings and parts of the heap."""
    give_back_free_mappings()
    runtime.give_back_freed_memory()


async def stay_below(
    bytes_max: int,
    resident: Callable[[], int] = runtime.resident_bytes,
    give_back: Callable[[], None] = give_back_free,
) -> None:
    """Look after the memory of this process, for as long as it runs."""
    limit = near = int(NEAR_SHARE * bytes_max)
    pressing = int(PRESSING_SHARE * bytes_max)
    left, rests_until = 0, 0.0  # resident after memory was last given back, and when it may again
    while True:
        await runtime.sleep(LOOK_SECONDS)
        held = resident()
        if runtime.monotonic() >= rests_until:
            is_due = held > limit
        else:
            is_due = held > pressing and held >= left + REGROWN_BYTES
        if is_due:
            await runtime.offload(give_back)
            left = resident()
            limit = min(bytes_max, max(near, left + GROWN_BYTES))
            rests_until = runtime.monotonic() + REST_SECONDS
