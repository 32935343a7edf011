"""A bucket in memory with the latency and faults that a test asks for; it counts requests.

Every call takes `latency()` seconds and then applies the next planned fault for its key: an error
to raise, or a change to the bytes read.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence

from neve import runtime
from neve.errors import ExistsError, NotFoundError
from neve.store.key import checked_size
from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo

Fault = Exception | Callable[[bytes], bytes]


class SlowStore:
    def __init__(
        self,
        objects: dict[str, bytes] | None = None,
        *,
        latency: Callable[[], float] = lambda: 0.01,
    ) -> None:
        self.objects = dict(objects or {})
        self.latency = latency
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.always: dict[str, Exception] = {}
        # An answer that is lost: the write takes effect and the caller is told of this failure.
        self.lost_answers: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self.calls: list[tuple[str, str]] = []
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.in_flight = 0
        self.in_flight_peak = 0

    def count(self, operation: str) -> int:
        return Counter(op for op, _ in self.calls)[operation]

    def count_key(self, key: str) -> int:
        return Counter(key for _, key in self.calls)[key]

    async def _call(self, operation: str, key: str) -> Fault | None:
        self.in_flight += 1
        self.in_flight_peak = max(self.in_flight_peak, self.in_flight)
        self.calls.append((operation, key))
        self.times[key].append(runtime.monotonic())
        try:
            await runtime.sleep(self.latency())
        finally:
            self.in_flight -= 1
        fault = self.faults[key].popleft() if self.faults[key] else self.always.get(key)
        if isinstance(fault, Exception):
            raise fault
        return fault

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        change = await self._call("get", key)
        checked_size(key, len(self.objects.get(key, b"")), bytes_max)
        return self._read(key, change)

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        change = await self._call("get_range", key)
        return self._read(key, change, start, end)

    def _read(
        self, key: str, change: Fault | None, start: int = 0, end: int | None = None
    ) -> memoryview:
        if key not in self.objects:
            raise NotFoundError(key, "the object does not exist")
        data = self.objects[key][start:end]
        assert not isinstance(change, Exception)
        return memoryview(change(data) if change is not None else data)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        change = await self._call("get_ranges", key)
        return [self._read(key, change, start, end) for start, end in ranges]

    async def put(self, key: str, data: Buffer) -> None:
        await self._call("put", key)
        self.objects[key] = bytes(data)

    async def create(self, key: str, data: Buffer) -> None:
        await self._call("create", key)
        if key in self.objects:
            raise ExistsError(key, "the key exists")
        self.objects[key] = bytes(data)
        if self.lost_answers[key]:
            raise self.lost_answers[key].popleft()

    async def delete(self, key: str) -> None:
        await self._call("delete", key)
        self.objects.pop(key, None)

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        await self._call("list", prefix)
        return [
            ObjectInfo(key, len(data), 0)
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix) and key > after
        ]

    async def close(self) -> None:
        """Nothing is held."""
