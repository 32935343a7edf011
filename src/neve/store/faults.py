"""A wrapper that injects latency and faults, randomly or by script, for tests and benchmarks.

All randomness comes from `neve.runtime`, so a simulation replays exactly. Every fault is one that a
real store may show: Neve's promises must hold under all of them. Late effects run in tasks that the
wrapper owns: `settle` waits for them, `close` cancels them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn, TypeVar

from neve import runtime
from neve.errors import (
    ConflictError,
    DeniedError,
    ExistsError,
    StoreError,
    StoreFailedError,
    UnavailableError,
)
from neve.store.port import Buffer, Store
from neve.store.wrapper import OPERATIONS, Call, Operation, Wrapper

T = TypeVar("T")

# The 99th percentile of a log-normal, in standard deviations above its median.
_P99_DEVIATIONS = 2.3263478740408408
# How often a create that waits for a delete of its key retries.
_LATE_POLL_SECONDS = 0.05


class Fault(Enum):
    """A fault of one call. The value is the field of `Faults` with its probability."""

    FAILS = "fails"
    """Fails transiently, without effect."""
    HANGS = "hangs"
    """Never returns, without effect."""
    SLOW_DOWN = "slow_down"
    """503 SlowDown, without effect."""
    FAILS_AFTER_EFFECT = "fails_after_effect"
    """A write that took effect, and whose response was lost."""
    HANGS_AFTER_EFFECT = "hangs_after_effect"
    """A write that took effect, and never returns."""
    LANDS_LATE = "lands_late"
    """A put or create that fails now and takes effect later."""
    LANDS_AFTER_DELETE = "lands_after_delete"
    """A create that fails now and takes effect once the key is free, such as after a delete."""
    CONFLICT = "conflict"
    """409 for a create, without effect."""
    CONFLICT_AFTER_EFFECT = "conflict_after_effect"
    """409 for a create that took effect."""
    REFUSED = "refused"
    """412 for a create although the key does not exist."""
    ANSWERS_LATE = "answers_late"
    """A call that takes effect immediately and returns late."""
    DENIED = "denied"
    """403, without effect."""
    FULL = "full"
    """A write that finds the disk full, without effect."""
    DELETE_LANDS_LATE = "delete_lands_late"
    """A delete that fails now and takes effect later."""
    TORN_READ = "torn_read"
    """A get that returns truncated bytes, or one flipped bit."""


_ALL = frozenset(OPERATIONS)
_WRITES: frozenset[Operation] = frozenset({"put", "create", "delete"})
_APPLIES: dict[Fault, frozenset[Operation]] = {
    Fault.FAILS: _ALL,
    Fault.HANGS: _ALL,
    Fault.SLOW_DOWN: _ALL,
    Fault.FAILS_AFTER_EFFECT: _WRITES,
    Fault.HANGS_AFTER_EFFECT: _WRITES,
    Fault.LANDS_LATE: frozenset({"put", "create"}),
    Fault.LANDS_AFTER_DELETE: frozenset({"create"}),
    Fault.CONFLICT: frozenset({"create"}),
    Fault.CONFLICT_AFTER_EFFECT: frozenset({"create"}),
    Fault.REFUSED: frozenset({"create"}),
    Fault.ANSWERS_LATE: _ALL,
    Fault.DENIED: _ALL,
    Fault.FULL: frozenset({"put", "create"}),
    Fault.DELETE_LANDS_LATE: frozenset({"delete"}),
    Fault.TORN_READ: frozenset({"get", "get_range"}),
}

_AFTER_EFFECT = {Fault.FAILS_AFTER_EFFECT, Fault.HANGS_AFTER_EFFECT, Fault.CONFLICT_AFTER_EFFECT}


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The probability of each fault, for the calls that it applies to. A call has at most one."""

    fails: float = 0.0
    hangs: float = 0.0
    slow_down: float = 0.0
    fails_after_effect: float = 0.0
    hangs_after_effect: float = 0.0
    lands_late: float = 0.0
    lands_after_delete: float = 0.0
    conflict: float = 0.0
    conflict_after_effect: float = 0.0
    refused: float = 0.0
    answers_late: float = 0.0
    denied: float = 0.0
    full: float = 0.0
    delete_lands_late: float = 0.0
    torn_read: float = 0.0
    late_ms_max: float = 5_000.0
    """Maximum delay of late effects and late responses."""
    after_delete_ms_max: float = 60_000.0
    """A create that waits for its key to be deleted gives up after this time."""


@dataclass(frozen=True)
class Latency:
    """A log-normal distribution of latencies, given by its median and 99th percentile."""

    median_ms: float
    p99_ms: float

    def draw_seconds(self) -> float:
        sigma = math.log(self.p99_ms / self.median_ms) / _P99_DEVIATIONS
        return runtime.chance().lognormvariate(math.log(self.median_ms / 1000), sigma)


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """The latency of each operation; None means no delay."""

    get: Latency | None = None
    get_range: Latency | None = None
    put: Latency | None = None
    create: Latency | None = None
    delete: Latency | None = None
    list: Latency | None = None

    @classmethod
    def of(cls, *, write: Latency, read: Latency) -> Latencies:
        """Return one latency for all writes and one for all reads."""
        return cls(get=read, get_range=read, list=read, put=write, create=write, delete=write)


@dataclass
class Rule:
    """A scripted fault for `times` matching calls, starting with the nth."""

    fault: Fault
    operation: Operation | None = None
    key_part: str = ""
    nth: int = 1
    times: int = 1
    matches: Callable[[Call], bool] | None = None
    seen: int = field(default=0, init=False)

    def befalls(self, call: Call) -> bool:
        """Return whether the fault applies to this call; counts the call if it matches."""
        if call.operation not in _APPLIES[self.fault] or self.key_part not in call.key:
            return False
        if self.operation not in {None, call.operation}:
            return False
        if self.matches is not None and not self.matches(call):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


class FaultyStore(Wrapper):
    """Injects faults into the calls of `inner`. `faults` may be replaced at any time."""

    def __init__(
        self,
        inner: Store,
        faults: Faults | None = None,
        *,
        latencies: Latencies | None = None,
        script: Sequence[Rule] = (),
    ) -> None:
        super().__init__(inner)
        self.faults = faults or Faults()
        self.latencies = latencies or Latencies()
        self.script: list[Rule] = list(script)
        self.counts: dict[Fault, int] = dict.fromkeys(Fault, 0)
        self.calls = 0
        self._late = runtime.Tasks()

    @property
    def injected(self) -> int:
        """The number of injected faults of all kinds."""
        return sum(self.counts.values())

    @property
    def outstanding(self) -> int:
        """The number of pending late effects."""
        return len(self._late)

    async def settle(self) -> None:
        """Wait until all late effects have landed or were given up."""
        await self._late.join()

    async def close(self) -> None:
        await self._late.close()
        await super().close()

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        """Inject a fault into a read or a list; `_write` handles writes."""
        fault = await self._begin(call)
        if fault is None:
            return await work()
        if fault is Fault.TORN_READ:
            return _torn(await work())
        if fault is Fault.ANSWERS_LATE:
            result = await work()
            await runtime.sleep(self._late_seconds())
            return result
        return await self._fail(call, fault)

    async def put(self, key: str, data: Buffer) -> None:
        kept = bytes(data)
        await self._write(Call("put", key, len(kept)), lambda: self.inner.put(key, kept))

    async def create(self, key: str, data: Buffer) -> None:
        kept = bytes(data)
        await self._write(Call("create", key, len(kept)), lambda: self.inner.create(key, kept))

    async def delete(self, key: str) -> None:
        await self._write(Call("delete", key), lambda: self.inner.delete(key))

    async def _write(self, call: Call, work: Callable[[], Awaitable[None]]) -> None:
        fault = await self._begin(call)
        if fault is None:
            await work()
            return
        if fault is Fault.ANSWERS_LATE:
            await work()
            await runtime.sleep(self._late_seconds())
            return
        if fault in _AFTER_EFFECT:
            await work()
        elif fault in {Fault.LANDS_LATE, Fault.DELETE_LANDS_LATE, Fault.LANDS_AFTER_DELETE}:
            wait_ms_max = self.faults.after_delete_ms_max
            until_free = wait_ms_max if fault is Fault.LANDS_AFTER_DELETE else 0.0
            self._late.start(_land(work, self._late_seconds(), until_free / 1000))
        await self._fail(call, fault)

    async def _begin(self, call: Call) -> Fault | None:
        self.calls += 1
        fault = self._chosen(call)
        if fault is not None:
            self.counts[fault] += 1
        latency: Latency | None = getattr(self.latencies, call.operation)
        if latency is not None:
            await runtime.sleep(latency.draw_seconds())
        return fault

    def _chosen(self, call: Call) -> Fault | None:
        # Every rule counts the call, also if an earlier rule applies.
        scripted = [rule.fault for rule in self.script if rule.befalls(call)]
        if scripted:
            return scripted[0]
        drawn = runtime.chance().random()
        for fault, operations in _APPLIES.items():
            if call.operation in operations:
                drawn -= getattr(self.faults, fault.value)
                if drawn < 0:
                    return fault
        return None

    def _late_seconds(self) -> float:
        return runtime.chance().random() * self.faults.late_ms_max / 1000

    async def _fail(self, call: Call, fault: Fault) -> NoReturn:
        if fault in {Fault.HANGS, Fault.HANGS_AFTER_EFFECT}:
            while True:
                await runtime.sleep(3600)
        if fault in {Fault.CONFLICT, Fault.CONFLICT_AFTER_EFFECT}:
            raise ConflictError(call.key, f"injected: 409, {fault.value}")
        if fault is Fault.REFUSED:
            raise ExistsError(call.key, "injected: 412, nothing is there")
        if fault is Fault.DENIED:
            raise DeniedError(call.key, "injected: 403")
        if fault is Fault.FULL:
            raise StoreFailedError(call.key, "injected: no space left on device")
        raise UnavailableError(call.key, f"injected: {call.operation} {fault.value}")


async def _land(
    work: Callable[[], Awaitable[None]], after_seconds: float, wait_seconds_max: float
) -> None:
    """Let a write take effect later; while its key exists, retry for up to `wait_seconds_max`."""
    await runtime.sleep(after_seconds)
    give_up_at = runtime.monotonic() + wait_seconds_max
    while True:
        try:
            await work()
        except ExistsError:
            if runtime.monotonic() >= give_up_at:
                return
            await runtime.sleep(_LATE_POLL_SECONDS)
        except StoreError:
            return  # the late request itself failed and has no effect
        else:
            return


def _torn(result: T) -> T:
    """Return the bytes truncated or with a flipped bit. Empty results stay empty."""
    if not isinstance(result, memoryview) or not result.nbytes:
        return result
    chance = runtime.chance()
    damaged = bytearray(result)
    if chance.random() < 0.5:
        del damaged[chance.randrange(len(damaged)) :]
    else:
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    torn: T = memoryview(bytes(damaged))  # type: ignore[assignment]
    return torn
