"""Staying below the memory that a broker may take up.

What is held is bounded part by part, and what was freed is kept for the next use, which may find no
place of its size among it. So much can come together that is nobody's that the process nears its
bound. Then the freed part is given back. That costs fresh pages afterwards, so it is not done
before, and not again at once, nor before the process has grown, unless it is past its bound: what
was in use then may be free by now, and does not show.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime
from neve.serving.process_view import resident_bytes
from neve.settings import MIB
from neve.store.room import give_back_free_mappings

LOOK_SECONDS = 1.0
REST_SECONDS = 10.0
NEAR_SHARE = 0.9
GROWN_BYTES = 16 * MIB


def give_back_free() -> None:
    """Give the system what is kept for the next use: mappings and parts of the heap."""
    give_back_free_mappings()
    runtime.give_back_freed_memory()


async def stay_below(
    bytes_max: int,
    resident: Callable[[], int] = resident_bytes,
    give_back: Callable[[], None] = give_back_free,
) -> None:
    """Look after the memory of this process, for as long as it runs."""
    limit = near = int(NEAR_SHARE * bytes_max)
    while True:
        await runtime.sleep(LOOK_SECONDS)
        if resident() > limit:
            await runtime.offload(give_back)
            limit = min(bytes_max, max(near, resident() + GROWN_BYTES))
            await runtime.sleep(REST_SECONDS)
