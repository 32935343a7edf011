"""Uploads a segment and its bundle concurrently.

Neither is used before the manifest lists both, so their order does not matter, and the pair takes
as long as the slower upload. Each create is retried until its outcome is known: if the key exists,
for example because the response to a create was lost, the object must have exactly these bytes.
Nothing is deleted here: half a pair is never listed, and repair or a merge job dooms it later.
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
    """Create both objects. If one fails, raises its error after the other upload has ended too.

    The caller must not change the buffers before this returns.
    """
    pair = ((segment_key, segment_data), (index_key, index_data))
    halves = [
        runtime.spawn(create_own(store, key, data), name=f"upload {key}") for key, data in pair
    ]
    try:
        await asyncio.wait(halves)
    finally:
        # An upload still runs here only if the caller was cancelled.
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
