"""The stores of streams: a store that finds each stream where it lies.

The WAL may lie in other stores than the bucket: see `wal.store`. `StreamStores` has the port of a
store and passes each call on: those for keys of a stream to the store of that stream, all others to
the bucket. So nothing that reads or writes streams knows of these stores. Where a stream lies is in
the cluster log: each view of it calls `StreamPlaces.learn`. A stream whose registration was not
read yet is refused, because in the wrong store it would look empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from neve.errors import InvalidError, StoreFailedError, UnavailableError
from neve.log.keys import WAL_PREFIX, stream_of
from neve.log.wal.store_identity import WalStoreIdentity, WalStoreRef, read_identity
from neve.settings import Settings
from neve.settings.masking import masked
from neve.settings.wal_stores import own_wal_store
from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo, Store
from neve.store.url import Stack, connect, parse

T = TypeVar("T")


class WalStoreUnavailableError(UnavailableError):
    """A WAL store does not answer. Streams that lie elsewhere are not concerned."""


@dataclass(frozen=True)
class NamedStore:
    """A store of `wal.store`: its URL without credentials, and the store."""

    url: str
    store: Store


class StreamPlaces:
    """In which store each stream lies, as far as the cluster log was read."""

    def __init__(self, named: Mapping[str, NamedStore], own: str | None = None) -> None:
        self.named = named
        self.own = own  # the name of the store that this process writes to; None: the bucket
        self._cluster_id = ""
        self._position = 0
        self._refs: Mapping[int, WalStoreRef] = {}
        self._listed: dict[int, str] = {}  # streams that no process needs, as last listed
        self._checked: dict[str, str] = {}  # ids of the stores that were found to be the right ones

    def learn(self, cluster_id: str, position: int, refs: Mapping[int, WalStoreRef]) -> None:
        """Take the places of all streams that were registered below a position of the log."""
        if position > self._position:
            self._cluster_id, self._position, self._refs = cluster_id, position, refs

    async def store_of(self, incarnation: int) -> tuple[str, Store] | None:
        """Return the name and store of a stream; None if it lies in the bucket.

        Raises InvalidError if this process does not know the store, or does not know the stream
        yet; StoreFailedError if the store is not the one in which the stream was written.
        """
        if incarnation >= self._position:
            raise InvalidError(
                f"stream {incarnation} was registered above number {self._position} of the cluster "
                "log, and this process has not read that far: it cannot know where the stream lies"
            )
        ref = self._refs.get(incarnation)
        if ref is not None:
            return ref.name, await self._checked_store(incarnation, ref)
        name = self._listed.get(incarnation)
        return None if name is None else (name, self.named[name].store)

    async def check_again(self, incarnation: int) -> None:
        """Raise as `store_of` does, of what is true now: a store may be emptied at any time."""
        ref = self._refs.get(incarnation)
        if ref is not None:
            self._checked.pop(ref.name, None)
        await self.store_of(incarnation)

    async def _checked_store(self, incarnation: int, ref: WalStoreRef) -> Store:
        named = self.named.get(ref.name)
        if named is None:
            raise InvalidError(
                f"stream {incarnation} lies in WAL store {ref.name!r} ({ref.url}), which wal.store "
                f"does not name: add --set wal.store={ref.name}=URL, with the URL at which this "
                "process reaches it"
            )
        if self._checked.get(ref.name) != ref.store_id:
            found = await self._identity(ref.name)
            if found is None or found.store_id != ref.store_id:
                raise StoreFailedError(
                    f"WAL store {ref.name!r}",
                    f"{named.url} is not the store in which stream {incarnation} was written: "
                    "correct wal.store; if that store is gone for good, see `neve cluster "
                    "abandon-wal`",
                )
            self._checked[ref.name] = ref.store_id
        return named.store

    async def _identity(self, name: str) -> WalStoreIdentity | None:
        try:
            return await read_identity(self.named[name].store)
        except UnavailableError as error:
            raise self.unavailable(name, error) from error

    def unavailable(self, name: str, error: UnavailableError) -> WalStoreUnavailableError:
        return WalStoreUnavailableError(
            error.key, f"WAL store {name!r} ({self.named[name].url}): {error.reason}"
        )

    async def list_all(self, main: Store, prefix: str, after: str) -> list[ObjectInfo]:
        """List streams of all stores. Stores that cannot be reached now are left out.

        So nothing may be concluded from what such a listing lacks.
        """
        rows = list(await main.list(prefix, after))
        listed: dict[int, str] = {}
        for name, named in self.named.items():
            try:
                identity = await self._identity(name)
                if identity is None or identity.cluster_id != self._cluster_id:
                    continue  # never used by this cluster
                found = await named.store.list(prefix, after)
            except UnavailableError:
                continue
            for row in found:
                incarnation = stream_of(row.key)
                if incarnation is not None:
                    listed.setdefault(incarnation, name)
                    rows.append(row)
        self._listed = listed
        return sorted(rows, key=lambda row: row.key)


class StreamStores:
    """A store that passes calls for a stream on to the store in which the stream lies.

    `of` returns a named store as this one should use it: as it is, or for read-ahead.
    """

    def __init__(
        self,
        inner: Store,
        places: StreamPlaces,
        of: Callable[[str], Store] | None = None,
    ) -> None:
        self.inner = inner
        self.places = places
        self._of = of

    async def _call(self, key: str, work: Callable[[Store], Awaitable[T]]) -> T:
        incarnation = stream_of(key)
        place = None if incarnation is None else await self.places.store_of(incarnation)
        if place is None:
            return await work(self.inner)
        name, store = place
        try:
            return await work(store if self._of is None else self._of(name))
        except UnavailableError as error:
            raise self.places.unavailable(name, error) from error

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        return await self._call(key, lambda store: store.get(key, bytes_max))

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        return await self._call(key, lambda store: store.get_range(key, start, end))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return await self._call(key, lambda store: store.get_ranges(key, ranges))

    async def put(self, key: str, data: Buffer) -> None:
        await self._call(key, lambda store: store.put(key, data))

    async def create(self, key: str, data: Buffer) -> None:
        await self._call(key, lambda store: store.create(key, data))

    async def delete(self, key: str) -> None:
        await self._call(key, lambda store: store.delete(key))

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        if stream_of(prefix) is not None:
            return await self._call(prefix, lambda store: store.list(prefix, after))
        if self.places.named and _covers_streams(prefix):
            return await self.places.list_all(self.inner, prefix, after)
        return await self.inner.list(prefix, after)

    async def close(self) -> None:
        await self.inner.close()
        for named in self.places.named.values():
            await named.store.close()


def _covers_streams(prefix: str) -> bool:
    return prefix.startswith(WAL_PREFIX) or WAL_PREFIX.startswith(prefix)


def places_of(store: Store) -> StreamPlaces | None:
    """Return the places of streams that a store, or one that it wraps, knows; else None."""
    layer: object = store
    while layer is not None:
        if isinstance(layer, StreamStores):
            return layer.places
        layer = getattr(layer, "inner", None)
    return None


async def check_place(store: Store, incarnation: int) -> None:
    """Raise StoreFailedError if a stream does not lie in its store any more.

    A caller that has found something missing in a stream calls this afterwards.
    """
    places = places_of(store)
    if places is not None:
        await places.check_again(incarnation)


def connect_bucket(
    url: str, settings: Settings, *, writes: bool = False, main: Stack | None = None
) -> Stack:
    """Open a bucket with its WAL stores. Sends no request.

    A process that `writes` a stream of its own has one of them for it: see `wal.own.store`. `main`
    is the bucket itself if the caller has opened it.
    """
    stores = settings.wal.stores
    for name, each in stores.items():
        _check_apart(url, name, each)
    own = None
    if writes:
        own = own_wal_store(stores, settings.wal.own_store, settings.broker.rack)
    stacks = {name: connect(each, settings.store) for name, each in stores.items()}
    urls = {name: shown_url(each) for name, each in stores.items()}
    return with_wal_stores(main or connect(url, settings.store), stacks, urls, own)


def with_wal_stores(
    main: Stack, stacks: Mapping[str, Stack], urls: Mapping[str, str], own: str | None = None
) -> Stack:
    """Return the stack of a bucket whose streams may lie in these other stores, by name."""
    named = {name: NamedStore(urls[name], row.store) for name, row in stacks.items()}
    places = StreamPlaces(named, own)
    return replace(
        main,
        store=StreamStores(main.store, places),
        prefetch=StreamStores(main.prefetch, places, lambda name: stacks[name].prefetch),
    )


def own_store_url(url: str, settings: Settings) -> str:
    """Return the URL of the store that a broker of the bucket at `url` writes its stream to."""
    stores = settings.wal.stores
    own = own_wal_store(stores, settings.wal.own_store, settings.broker.rack)
    return url if own is None else stores[own]


def shown_url(url: str) -> str:
    """Return a store's URL without credentials, with an absolute path for a folder."""
    where = parse(url)
    return masked(where.folder.absolute().as_uri() if where.scheme == "file" else url)


def _check_apart(main: str, name: str, url: str) -> None:
    """Raise InvalidError if a WAL store is the bucket itself."""
    one, other = parse(main), parse(url)
    is_new = one.scheme == "memory" and not one.name  # each of these is a bucket of its own
    if not is_new and replace(one, folder=one.folder.absolute()) == replace(
        other, folder=other.folder.absolute()
    ):
        raise InvalidError(
            f"wal.store: {name!r} is the bucket itself ({masked(url)}): leave it out, or set "
            "wal.own.store=main"
        )
