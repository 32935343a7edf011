"""Retries of transient failures.

UnavailableError is retried up to a number of times per call, DeniedError for a bounded time,
because tokens rotate. Pauses double and are jittered. All calls share a retry budget, so that an
unavailable store is not overloaded. Other errors are raised immediately: a retry would not change
them (NotFoundError, ExistsError, StoreFailedError, InvalidError), or only the caller can decide. On
a ConflictError of a create the caller must read the key first, and likewise on the ExistsError of a
retried create, whose earlier attempt may have taken effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.errors import DeniedError, UnavailableError
from neve.settings import StoreSettings
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")

# What the budget accumulates while nothing fails: enough for one retry of all calls in flight, and
# not enough to overload a store that is down.
BUDGET_BURST_SECONDS = 10.0


class RetryBudget:
    """A token bucket for retries. Several stores may share one budget."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._tokens_max = per_second * BUDGET_BURST_SECONDS
        self._tokens = self._tokens_max
        self._filled_at: float | None = None

    def take(self) -> bool:
        """Take a token. Returns False if there is none."""
        now = runtime.monotonic()
        if self._filled_at is not None:
            gained = (now - self._filled_at) * self._per_second
            self._tokens = min(self._tokens_max, self._tokens + gained)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Retry(Wrapper):
    """Retries the calls of `inner`."""

    def __init__(
        self, inner: Store, settings: StoreSettings, budget: RetryBudget | None = None
    ) -> None:
        super().__init__(inner)
        self._settings = settings
        self._budget = budget or RetryBudget(settings.retry_budget_per_second)
        self.retries = 0
        self.budget_refusals = 0

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        retries = 0
        denied_since: float | None = None
        while True:
            try:
                return await work()
            except UnavailableError:
                if retries >= self._settings.retry_attempts_max or not self._may_retry():
                    raise
                pause_seconds = self._pause_seconds(retries)
            except DeniedError:
                now = runtime.monotonic()
                denied_since = now if denied_since is None else denied_since
                left_seconds = denied_since + self._settings.denied_grace_ms / 1000 - now
                if left_seconds <= 0 or not self._may_retry():
                    raise
                pause_seconds = min(self._pause_seconds(retries), left_seconds)
            retries += 1
            await runtime.sleep(pause_seconds)

    def _may_retry(self) -> bool:
        if self._budget.take():
            self.retries += 1
            return True
        self.budget_refusals += 1
        return False

    def _pause_seconds(self, retries: int) -> float:
        settings = self._settings
        return runtime.backoff_seconds(
            retries, settings.retry_base_ms, settings.retry_cap_ms, settings.retry_jitter
        )
