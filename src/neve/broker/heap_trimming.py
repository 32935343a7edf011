"""Keep the resident memory of a broker below its bound.

Each component bounds the memory it uses, but the heap keeps freed memory. Free but fragmented heap
memory can push RSS towards its limit. Near the limit, the broker returns free memory to the system.
That costs page faults afterwards. So it does this at most once in `REST_SECONDS`, and again only
after RSS has grown, or while it is over the bound. If RSS grows again and is about to pass the
bound, it does not wait for `REST_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime
from neve.settings import MIB
from neve.store.aligned_buffers import give_back_free_mappings

CHECK_SECONDS = 0.25
REST_SECONDS = 10.0
NEAR_SHARE = 0.9
PRESSING_SHARE = 0.97
GROWN_BYTES = 16 * MIB
REGROWN_BYTES = 4 * MIB
"""RSS must grow by this much before free memory is returned again within `REST_SECONDS`."""


def give_back_free() -> None:
    """Return free memory to the system: idle mappings and free parts of the heap."""
    give_back_free_mappings()
    runtime.give_back_freed_memory()


async def stay_below(
    bytes_max: int,
    resident: Callable[[], int] = runtime.resident_bytes,
    give_back: Callable[[], None] = give_back_free,
) -> None:
    """Check resident memory every `CHECK_SECONDS`, and return free memory near the bound."""
    limit = near = int(NEAR_SHARE * bytes_max)
    pressing = int(PRESSING_SHARE * bytes_max)
    left, rests_until = 0, 0.0  # RSS after the last return of memory; the earliest next
    while True:
        await runtime.sleep(CHECK_SECONDS)
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
