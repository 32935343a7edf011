"""Uploading a segment and its bundle side by side.

Neither is of use before the manifest lists both, so their order does not matter and the pair takes
as long as its slower half. Each create is tried until it is decided: a key that is taken counts as
ours only if the object, read back, has exactly our bytes, as after a create whose answer was lost.
Nothing is deleted here, whatever happens: half a pair is never listed, and the collector dooms it.
"""

from __future__ import annotations

import asyncio

from neve import runtime
from neve.errors import UnavailableError
from neve.log.create import create_own
from neve.store.port import Buffer, Store


async def upload_pair(
    store: Store,
    segment_key: str,
    segment_data: Buffer,
    index_key: str,
    index_data: Buffer,
) -> None:
    """Create both objects, or raise why one could not be, after the other has ended as well.

    The buffers are not changed before this returns.
    """
    pair = ((segment_key, segment_data), (index_key, index_data))
    halves = [
        runtime.spawn(create_own(store, key, data), name=f"upload {key}") for key, data in pair
    ]
    try:
        await asyncio.wait(halves)
    finally:
        # Only where the caller was cancelled does anything still run here.
        for half in halves:
            half.cancel()
        await asyncio.wait(halves)
    outcomes = [_failure(half, key) for half, (key, _) in zip(halves, pair, strict=True)]
    failures = [failure for failure in outcomes if failure is not None]
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"and {other}")
        raise failures[0]


def _failure(half: asyncio.Task[None], key: str) -> BaseException | None:
    # A cancelled upload must not look like the caller's own cancellation.
    return (
        UnavailableError(key, "its upload was cancelled") if half.cancelled() else half.exception()
    )
