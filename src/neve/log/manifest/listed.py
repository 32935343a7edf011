"""Reads many manifests of one topic through one listing.

Most requests of a manifest's reader are for numbers and checkpoints that do not exist yet, and the
listing shows that without a request. Numbers were listed before checkpoints. If a listed object is
gone when it is read, the manifest was trimmed meanwhile, and all further reads go to the store.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from neve.errors import NotFoundError
from neve.store.port import OBJECT_BYTES_MAX, ObjectInfo, Store
from neve.store.wrapper import Wrapper


class ListedStore(Wrapper):
    """A store with a listing of everything under `prefix`."""

    def __init__(self, inner: Store, prefix: str, rows: Sequence[ObjectInfo]) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._rows = rows
        self._keys = [row.key for row in rows]
        self._known = frozenset(self._keys)
        self.is_stale = False

    @classmethod
    async def of(cls, store: Store, prefix: str) -> ListedStore:
        return cls(store, prefix, await store.list(prefix))

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        if not self.is_stale and key.startswith(self._prefix) and key not in self._known:
            raise NotFoundError(key, "it was not there when its topic's manifests were listed")
        try:
            return await self.inner.get(key, bytes_max)
        except NotFoundError:
            self.is_stale = True
            raise

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        if self.is_stale or not prefix.startswith(self._prefix):
            return await self.inner.list(prefix, after)
        start = bisect.bisect_left(self._keys, prefix)
        start = max(start, bisect.bisect_right(self._keys, after))
        end = start
        while end < len(self._keys) and self._keys[end].startswith(prefix):
            end += 1
        return self._rows[start:end]
