"""The heartbeat object of a process: a sign of life for those that cannot reach it.

It is the one object that is overwritten. That is safe because nothing about data depends on it: an
observer that sees a stale, lost or damaged heartbeat can at worst propose to expire a live process,
and the cluster log decides that as it does after any wrong suspicion.
"""

from __future__ import annotations

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.errors import DamagedError, NotFoundError
from neve.log.downloads import fetch_checked
from neve.log.envelope import (
    AUTHOR_BYTES,
    Kind,
    Stored,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.keys import HEARTBEAT_PREFIX, heartbeat_key, heartbeat_of
from neve.store.deletion import delete_all
from neve.store.port import Store

HEARTBEAT_BYTES_MAX = 1_024


class Heartbeat(Stored, frozen=True):
    """The payload of a heartbeat. The envelope's number is the incarnation."""

    count: int


async def write_heartbeat(store: Store, incarnation: int, count: int) -> None:
    """Write the heartbeat of a process, in place of the one before."""
    author = runtime.token(AUTHOR_BYTES)
    payload = Heartbeat(count)
    data = seal_envelope(Kind.HEARTBEAT, HEARTBEAT_PREFIX, incarnation, author, payload)
    await store.put(heartbeat_key(incarnation), data)


async def read_heartbeat(store: Store, incarnation: int) -> int | None:
    """Return the count of a process's heartbeat; None if there is none, or it is damaged.

    Raises UnsupportedError for the heartbeat of a newer Neve: that its process is silent cannot be
    concluded from it.
    """
    try:
        return await checked_heartbeat(store, incarnation)
    except (NotFoundError, DamagedError):
        return None


async def checked_heartbeat(store: Store, incarnation: int) -> int:
    """Return the count of a process's heartbeat. Raises NotFoundError or DamagedError."""
    key = heartbeat_key(incarnation)

    def decode(data: memoryview) -> Heartbeat:
        envelope = open_envelope(data, Kind.HEARTBEAT, HEARTBEAT_PREFIX, incarnation, key)
        payload: Heartbeat = decode_payload(envelope, Heartbeat, key)
        return payload

    return (await fetch_checked(store, key, HEARTBEAT_BYTES_MAX, decode)).count


async def delete_heartbeats(store: Store, cluster: ClusterLog) -> int:
    """Delete the heartbeats of processes that have ended. Returns how many were deleted.

    One that a process writes before it notices its end is deleted the next time.
    """
    listed = [row.key for row in await store.list(HEARTBEAT_PREFIX)]
    if not listed:
        return 0
    # The cluster log is read after the listing: a process writes heartbeats once it has registered,
    # so a listed one counts as live here unless it has ended.
    state = await cluster.refresh()
    live = {row.incarnation for row in state.brokers.values() if row.live}
    doomed = [key for key in listed if is_over(heartbeat_of(key), live, cluster.view.position)]
    await delete_all(store, doomed)
    return len(doomed)


def is_over(incarnation: int | None, live: set[int], position: int) -> bool:
    """Whether this is a process that registered below a position of the cluster log and ended.

    None stands for a key that is not of a heartbeat.
    """
    return incarnation is not None and incarnation < position and incarnation not in live
