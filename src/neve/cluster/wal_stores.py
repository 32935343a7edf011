"""The WAL store of a starting process: which it is, and whether it may be used.

`neve.log.wal.stores` finds the streams. Here is what must hold before a stream is begun in a store:
the store has an identity, and no other store of its name holds streams that are still needed.
"""

from __future__ import annotations

from neve.cluster.state import ClusterState
from neve.errors import InvalidError, UnavailableError
from neve.log.keys import WAL_STORE_KEY
from neve.log.wal.store_identity import WalStoreRef, create_identity, read_identity
from neve.log.wal.stores import places_of
from neve.store.port import Store
from neve.store.probe import probe as probe_store


async def own_wal_store(store: Store, state: ClusterState, *, probe: bool) -> WalStoreRef | None:
    """Return the WAL store of this process; None if its stream lies in the bucket itself.

    A store that is used for the first time is probed and gets its identity. Raises InvalidError if
    it belongs to another cluster or name, or if a store that streams lie in is not known here.
    """
    places = places_of(store)
    known = {} if places is None else places.named
    for incarnation, ref in _needed(state):
        if ref.name not in known:
            raise InvalidError(
                f"stream {incarnation} of this cluster lies in WAL store {ref.name!r} ({ref.url}), "
                f"which wal.store does not name: every broker needs it; add {ref.name}=URL"
            )
    if places is None or places.own is None:
        return None
    name, named = places.own, known[places.own]
    identity = await read_identity(named.store)
    if identity is None:
        check_wal_store(state, WalStoreRef(name=name, url=named.url, store_id=""))
        if probe:
            await probe_store(named.store)
        identity = await create_identity(named.store, state.cluster_id, name)
    if identity is None:
        raise UnavailableError(WAL_STORE_KEY, f"{named.url} has not taken its identity: try again")
    if (identity.cluster_id, identity.name) != (state.cluster_id, name):
        raise InvalidError(
            f"{named.url} is WAL store {identity.name!r} of cluster {identity.cluster_id}, and not "
            f"{name!r} of cluster {state.cluster_id}: use another store or prefix for each"
        )
    return WalStoreRef(name=name, url=named.url, store_id=identity.store_id)


def check_wal_store(state: ClusterState, wanted: WalStoreRef | None) -> None:
    """Raise InvalidError if another store of the same name holds streams of this cluster."""
    for incarnation, ref in _needed(state):
        if wanted is not None and ref.name == wanted.name and ref.store_id != wanted.store_id:
            raise InvalidError(
                f"{wanted.url} is not the WAL store {ref.name!r} ({ref.url}) in which stream "
                f"{incarnation} of this cluster lies: correct wal.store, or give the new store "
                "another name; if the old one is gone for good, give its streams up with "
                f"`neve cluster abandon-wal --store-name {ref.name}`"
            )


def _needed(state: ClusterState) -> list[tuple[int, WalStoreRef]]:
    """Return the streams outside the bucket that a process writes or a partition needs."""
    streams = set(state.streams())
    return [
        (key, ref)
        for key, ref in sorted(state.wal_stores().items())
        if key in streams or state.brokers[key].live
    ]
