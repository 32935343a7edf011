"""Uploading a segment and its bundle side by side.

Neither is of use before the manifest lists both, so their order does not matter and the pair takes
as long as its slower half. Each create is tried until it is decided: a key that is taken counts as
ours only if the object, read back, has exactly our bytes, as after a create whose answer was lost.
Nothing is deleted here, whatever happens: half a pair is never listed, and the collector dooms it.
"""

from __future__ import annotations

import asyncio

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError, UnavailableError
from neve.log.fetch import backoff_seconds
from neve.settings import StoreSettings
from neve.store.port import Buffer, Store


async def upload_pair(
    store: Store,
    segment_key: str,
    segment_data: Buffer,
    index_key: str,
    index_data: Buffer,
    *,
    settings: StoreSettings | None = None,
) -> None:
    """Create both objects, or raise why one could not be, after the other has ended as well.

    The buffers are not changed before this returns. What is undecided is tried again as often, and
    with such pauses, as `store.retry.*` say.
    """
    bounds = settings or StoreSettings()
    pair = ((segment_key, segment_data), (index_key, index_data))
    halves = [
        runtime.spawn(create_decided(store, key, data, bounds), name=f"upload {key}")
        for key, data in pair
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
    # Somebody else's cancellation must not look like the caller's own.
    return (
        UnavailableError(key, "its upload was cancelled") if half.cancelled() else half.exception()
    )


async def create_decided(store: Store, key: str, data: Buffer, settings: StoreSettings) -> None:
    """Create one object under a key that only we use, and know for certain that it is there."""
    failures = 0
    while True:
        try:
            await _create_once(store, key, data)
        except (ConflictError, UnavailableError):
            if failures == settings.retry_attempts_max:
                raise
        else:
            return
        await runtime.sleep(
            backoff_seconds(
                failures, settings.retry_base_ms, settings.retry_cap_ms, settings.retry_jitter
            )
        )
        failures += 1


async def _create_once(store: Store, key: str, data: Buffer) -> None:
    try:
        await store.create(key, data)
    except ExistsError:
        await _decide_taken(store, key, data)


async def _decide_taken(store: Store, key: str, data: Buffer) -> None:
    """Return if the key holds our bytes. ConflictError: it was taken, and nothing is there."""
    try:
        found = await store.get(key)
        if found != memoryview(data):
            # Once more: half an answer also differs.
            found = await store.get(key)
    except NotFoundError as error:
        raise ConflictError(key, "its create was refused, and nothing is there") from error
    if found != memoryview(data):
        raise ExistsError(
            key,
            f"another object of {len(found)} bytes has this key, not ours of {len(data)}: "
            "upload under a new key",
        )
