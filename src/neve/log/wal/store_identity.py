"""The identity of a WAL store: one object that says whose streams it holds.

A store that was mistyped, emptied or made again looks like one whose streams have ended with their
first number: a successor would seal them there and lose their records. So a store is only used for
streams whose registration names the id that the store itself holds.
"""

from __future__ import annotations

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError
from neve.log.downloads import fetch_checked
from neve.log.envelope import (
    AUTHOR_BYTES,
    Kind,
    Stored,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.keys import WAL_STORE_KEY
from neve.store.port import Store

IDENTITY_BYTES_MAX = 1_024
ID_BYTES = 8


class WalStoreRef(Stored, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A WAL store as the cluster log names it. The URL is for people, and has no credentials."""

    name: str
    url: str
    store_id: str


class WalStoreIdentity(Stored, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The payload of a WAL store's identity."""

    cluster_id: str
    name: str
    store_id: str


async def read_identity(store: Store) -> WalStoreIdentity | None:
    """Return the identity of a WAL store; None if it has none."""

    def decode(data: memoryview) -> WalStoreIdentity:
        envelope = open_envelope(data, Kind.WAL_STORE, WAL_STORE_KEY, 0, WAL_STORE_KEY)
        payload: WalStoreIdentity = decode_payload(envelope, WalStoreIdentity, WAL_STORE_KEY)
        return payload

    try:
        return await fetch_checked(store, WAL_STORE_KEY, IDENTITY_BYTES_MAX, decode)
    except NotFoundError:
        return None


async def create_identity(store: Store, cluster_id: str, name: str) -> WalStoreIdentity | None:
    """Give a WAL store an identity, and return the one that it has then; None if undecided."""
    fresh = WalStoreIdentity(
        cluster_id=cluster_id, name=name, store_id=runtime.token(ID_BYTES).hex()
    )
    author = runtime.token(AUTHOR_BYTES)
    try:
        data = seal_envelope(Kind.WAL_STORE, WAL_STORE_KEY, 0, author, fresh)
        await store.create(WAL_STORE_KEY, data)
    except (ExistsError, ConflictError):
        pass  # another broker was faster, or our own attempt landed
    return await read_identity(store)
