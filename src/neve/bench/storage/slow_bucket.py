"""The store of the storage benchmarks: in memory, with a cloud store's latencies, observed.

Latencies are log-normal and drawn in the order of calls, so two designs that run from the same seed
get the same sequence of latencies. Optionally all transfers share a link of limited bandwidth.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from neve import runtime
from neve.store.faults import FaultyStore, Latencies, Latency
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.wrapper import Call, Operation, Wrapper

T = TypeVar("T")

PUT_LATENCY = Latency(median_ms=20, p99_ms=200)
GET_LATENCY = Latency(median_ms=10, p99_ms=100)
LATENCIES = Latencies.of(write=PUT_LATENCY, read=GET_LATENCY)
LINK_BYTES_PER_SECOND = 1.25e9
"""10 Gbit/s for all transfers together."""

READS: frozenset[Operation] = frozenset({"get", "get_range"})
WRITES: frozenset[Operation] = frozenset({"put", "create"})


class Observed(NamedTuple):
    """One completed request."""

    operation: Operation
    key: str
    seconds: float


class SlowBucket(Wrapper):
    """A store over `bucket` with LATENCIES. `requests` has every request that succeeded."""

    def __init__(
        self, bucket: MemoryBucket | None = None, *, link_bytes_per_second: float | None = None
    ) -> None:
        super().__init__(FaultyStore(MemoryStore(bucket), latencies=LATENCIES))
        self.requests: list[Observed] = []
        self._seconds_per_byte = 1 / link_bytes_per_second if link_bytes_per_second else 0.0
        self._link_free_at = 0.0

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        started = runtime.monotonic()
        result = await work()
        received: Any = result
        moved = received.nbytes if isinstance(received, memoryview) else call.sent_bytes
        if self._seconds_per_byte and moved:
            await self._transfer(moved)
        seconds = runtime.monotonic() - started
        self.requests.append(Observed(call.operation, call.key, seconds))
        return result

    async def _transfer(self, size_bytes: int) -> None:
        """Wait until the link has transferred these bytes, after those of earlier calls."""
        now = runtime.monotonic()
        self._link_free_at = max(now, self._link_free_at) + size_bytes * self._seconds_per_byte
        await runtime.sleep(self._link_free_at - now)

    @property
    def reads(self) -> list[Observed]:
        return [seen for seen in self.requests if seen.operation in READS]

    @property
    def writes(self) -> list[Observed]:
        return [seen for seen in self.requests if seen.operation in WRITES]


async def took_seconds(work: Awaitable[object]) -> float:
    """Await `work`. Returns the seconds that it took on the simulated clock."""
    started = runtime.monotonic()
    await work
    return runtime.monotonic() - started
