"""The prefetching reader: downloads ahead of its consumer and returns items in order.

Recovery and catch-up readers know what they will read next. They need not wait for one download
before they start another. Guarantees:

- At most `prefetch.window` items are downloading, or downloaded and not yet returned. A
  `MemoryShare` of `prefetch.bytes` limits their bytes; a larger item is downloaded alone. At most
  `prefetch.downloads` run concurrently. The reader keeps no reference to what it has returned.
- A transient error is retried with growing pauses. Data that fails its checks may be a torn read:
  it is read again as often as in `fetch` before DamagedError is raised. If all retries of a
  download fail, or its task was cancelled, it is started once more when the consumer reaches it. If
  that fails too, the iteration cancels all other downloads, waits for them, and raises the failure.
- Only the item that the consumer waits for queues for a slot of the store. All others go through
  the `ahead` store (`Gate.prefetching()`), which rejects them while no slot is free: reading ahead
  takes no slot from live traffic.
- Closing ends the iteration and waits for its downloads. No task remains. Nothing is written to
  disk. An iteration that was ended, by closing or by a second one, raises ClosedError, since
  StopAsyncIteration would look like the end of the data.

A large object is given as several ranges (`fetch.split_ranges`), so that its first record does not
wait for its last byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from neve import runtime
from neve.errors import ClosedError, DamagedError, InvalidError, UnavailableError
from neve.log.downloads import ATTEMPTS_DEFAULT, Download, through_free_slots
from neve.settings import PrefetchSettings
from neve.store.port import Store

T = TypeVar("T")


class Downloaded(NamedTuple, Generic[T]):
    """A finished download and its data, as the consumer gets it."""

    download: Download[T]
    data: T


@dataclass
class PrefetchCounters:
    """Counters of one reader, over all its iterations."""

    downloads: int = 0
    retries: int = 0
    fallbacks: int = 0
    slot_waits: int = 0
    window_peak: int = 0
    downloads_peak: int = 0


class PrefetchReader:
    """Reads ahead for one consumer. Use it as `async with`, or call `aclose` when done.

    `budget` counts the bytes of items that are downloading, or downloaded and not yet returned.
    """

    def __init__(
        self, store: Store, settings: PrefetchSettings, *, ahead: Store | None = None
    ) -> None:
        self.counters = PrefetchCounters()
        self.budget = runtime.MemoryShare("prefetch", settings.bytes)
        self._store = store
        self._ahead = ahead
        self._settings = settings
        self._iterations: list[Iteration[Any]] = []
        self._closed = False

    def read(self, downloads: Iterable[Download[T]] | AsyncIterable[Download[T]]) -> Iteration[T]:
        """Start downloads and return an iteration over them, in order. Ends the previous one."""
        if self._closed:
            raise ClosedError("the prefetching reader is closed: open another one")
        for earlier in self._iterations:
            earlier.end("a second iteration of its reader was started")
        self._iterations = [it for it in self._iterations if not it.finished]
        downloader = _Downloader(self._store, self._ahead, self._settings, self.counters)
        iteration = Iteration(
            downloader, self._settings, self.budget, downloads, tuple(self._iterations)
        )
        self._iterations.append(iteration)
        return iteration

    async def aclose(self) -> None:
        """End the iteration and wait until all its tasks have ended."""
        self._closed = True
        for iteration in self._iterations:
            iteration.end("its reader was closed")
        for iteration in self._iterations:
            await iteration.aclose()
        self._iterations.clear()

    async def __aenter__(self) -> PrefetchReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Downloader:
    """One download with its retries: through free slots only, until the consumer waits for it."""

    def __init__(
        self,
        store: Store,
        ahead: Store | None,
        settings: PrefetchSettings,
        counters: PrefetchCounters,
    ) -> None:
        self._store = store
        self._ahead = ahead
        self._settings = settings
        self.counters = counters

    async def run(self, download: Download[T], awaited: asyncio.Event) -> T:
        failures = bad_reads = 0
        while True:
            try:
                return await self._attempt(download, awaited)
            except UnavailableError:
                if failures == self._settings.retries:
                    raise
            except DamagedError:
                bad_reads += 1
                if failures == self._settings.retries or bad_reads == ATTEMPTS_DEFAULT:
                    raise
            chosen = self._settings
            await runtime.sleep(
                runtime.backoff_seconds(
                    failures, chosen.retry_base_ms, chosen.retry_cap_ms, chosen.retry_jitter
                )
            )
            failures += 1
            self.counters.retries += 1

    async def _attempt(self, download: Download[T], awaited: asyncio.Event) -> T:
        return await through_free_slots(
            download.fetch, self._store, self._ahead, awaited, self._count_slot_wait
        )

    def _count_slot_wait(self) -> None:
        self.counters.slot_waits += 1


class _Item(Generic[T]):
    """One place in the window: the download's task, and whether the consumer waits for it."""

    def __init__(self, download: Download[T], downloader: _Downloader) -> None:
        self.download = download
        self.bytes = download.size_bytes
        self.awaited = asyncio.Event()
        self.fell_back = False
        self.counted = False
        self.task = self._start(downloader)

    def _start(self, downloader: _Downloader) -> asyncio.Task[T]:
        downloader.counters.downloads += 1
        work = downloader.run(self.download, self.awaited)
        return runtime.spawn(work, name=f"prefetch {self.download.key}+{self.download.start}")

    @property
    def succeeded(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is None

    def fall_back(self, downloader: _Downloader) -> None:
        downloader.counters.fallbacks += 1
        self.fell_back = True
        self.task = self._start(downloader)

    def failure(self) -> BaseException:
        """Return the reason. A cancelled task must not look like a cancelled consumer."""
        failure = None if self.task.cancelled() else self.task.exception()
        key = self.download.key
        return failure or UnavailableError(key, "its download was cancelled, twice; read again")


class Iteration(Generic[T]):
    """One pass over the downloads, for one consumer. Made by `PrefetchReader.read`.

    A consumer that is cancelled while it waits loses nothing: its next call waits for that item.
    """

    def __init__(
        self,
        downloader: _Downloader,
        settings: PrefetchSettings,
        budget: runtime.MemoryShare,
        downloads: Iterable[Download[T]] | AsyncIterable[Download[T]],
        earlier: tuple[Iteration[Any], ...],
    ) -> None:
        self._downloader = downloader
        self._settings = settings
        self._budget = budget
        self._earlier = earlier
        self._items: deque[_Item[T]] = deque()
        # Downloads that run, or that failed and keep their place for the fallback: a store that
        # fails does not receive ever more requests.
        self._unsettled = 0
        self._place_free = asyncio.Event()
        self._arrival = asyncio.Event()
        self._exhausted = False
        self._source_failure: BaseException | None = None
        self._ended: str | None = None
        self._consumer_waits = False
        self._filler = runtime.spawn(self._fill(downloads), name="prefetch filler")
        self._filler.add_done_callback(self._filled)

    def __aiter__(self) -> Iteration[T]:
        return self

    async def __anext__(self) -> Downloaded[T]:
        if self._consumer_waits:
            raise InvalidError("a prefetching reader has one consumer: two wait for the next item")
        self._consumer_waits = True
        try:
            item = await self._head()
            if item is None:
                await self._finish()
                raise StopAsyncIteration
            await self._settle(item)
            return self._hand_over(item)
        finally:
            self._consumer_waits = False

    async def _head(self) -> _Item[T] | None:
        """Return the next item in order; None if there are no more."""
        while True:
            self._refuse_if_ended()
            if self._items:
                return self._items[0]
            if self._exhausted:
                return None
            self._arrival.clear()
            await self._arrival.wait()

    async def _settle(self, item: _Item[T]) -> None:
        """Wait for the item. If it failed, try once more; if that fails, end the iteration."""
        item.awaited.set()
        await asyncio.wait([item.task])
        self._refuse_if_ended()
        if item.succeeded:
            return
        # A consumer that was cancelled during the fallback comes back to the fallback's own task.
        if not item.fell_back:
            item.fall_back(self._downloader)
            item.task.add_done_callback(functools.partial(self._downloaded, item))
            await asyncio.wait([item.task])
            self._refuse_if_ended()
        if not item.succeeded:
            failure = item.failure()
            self.end("a download failed for good")
            await self.aclose()
            raise failure

    def _hand_over(self, item: _Item[T]) -> Downloaded[T]:
        self._downloaded(item)
        self._items.popleft()
        self._budget.give_back(item.bytes)
        self._place_free.set()
        return Downloaded(item.download, item.task.result())

    def _refuse_if_ended(self) -> None:
        if self._ended is not None:
            raise ClosedError(f"this iteration yields nothing more: {self._ended}")

    async def _finish(self) -> None:
        """After the last item, raise the error that ended the list of downloads early, if any."""
        failure = self._source_failure
        if failure is not None:
            self.end("the list of its downloads failed")
            await self.aclose()
            raise failure

    # The filler takes downloads from the list while there is room for them.

    async def _fill(self, downloads: Iterable[Download[T]] | AsyncIterable[Download[T]]) -> None:
        # The limits are those of the reader, so earlier iterations must release their items first.
        for iteration in self._earlier:
            await iteration.aclose()
        self._earlier = ()
        async with contextlib.aclosing(_as_async(downloads)) as source:
            async for download in source:
                while not self._has_place():
                    self._place_free.clear()
                    await self._place_free.wait()
                await self._budget.take(download.size_bytes)
                self._begin(download)

    def _filled(self, filler: asyncio.Task[None]) -> None:
        if filler.cancelled():
            # It must not look like the end of the data.
            self._source_failure = ClosedError("the task that reads ahead was cancelled")
        else:
            self._source_failure = filler.exception()
        self._exhausted = True
        self._arrival.set()

    def _has_place(self) -> bool:
        chosen = self._settings
        return self._unsettled < chosen.downloads and len(self._items) < chosen.window

    def _begin(self, download: Download[T]) -> None:
        item = _Item(download, self._downloader)
        item.task.add_done_callback(functools.partial(self._downloaded, item))
        self._items.append(item)
        self._unsettled += 1
        self._note_peaks()
        self._arrival.set()

    def _downloaded(self, item: _Item[T], _task: asyncio.Task[T] | None = None) -> None:
        """Count a successful download once, and correct the budget by its true size."""
        if item.counted or self._ended is not None or not item.succeeded:
            return
        item.counted = True
        self._unsettled -= 1
        result = item.task.result()
        if isinstance(result, bytes | bytearray | memoryview):
            self._budget.count(len(result) - item.bytes)
            item.bytes = len(result)
        self._place_free.set()

    def _note_peaks(self) -> None:
        counters = self._downloader.counters
        counters.window_peak = max(counters.window_peak, len(self._items))
        counters.downloads_peak = max(counters.downloads_peak, self._unsettled)

    # Ending takes effect at once for the consumer. `aclose` waits for the tasks.

    @property
    def finished(self) -> bool:
        """Whether this iteration has no task left and holds no bytes of the budget."""
        return self._filler.done() and not self._items

    def end(self, reason: str) -> None:
        """Yield nothing more and cancel all tasks. `aclose` waits for them."""
        if self._ended is not None:
            return  # cancelling a task twice would interrupt its cleanup
        self._ended = reason
        self._filler.cancel()
        for item in self._items:
            item.task.cancel()
        self._arrival.set()

    async def aclose(self) -> None:
        """End this iteration, wait until its tasks have ended, and free what was downloaded."""
        self.end("it was closed")
        tasks: list[asyncio.Task[Any]] = [self._filler, *(item.task for item in self._items)]
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # marks it as seen
        while self._items:
            self._budget.give_back(self._items.popleft().bytes)


async def _as_async(
    downloads: Iterable[Download[T]] | AsyncIterable[Download[T]],
) -> AsyncGenerator[Download[T], None]:
    if not isinstance(downloads, AsyncIterable):
        for download in downloads:
            yield download
        return
    try:
        async for download in downloads:
            yield download
    finally:
        if isinstance(downloads, AsyncGenerator):
            await downloads.aclose()
