"""Failures of background work: told once, and left alone for a growing while."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from neve import runtime
from neve.errors import NeveError

PAUSE_MS = 500
PAUSE_MS_MAX = 60_000
PAUSE_JITTER = 0.25


class Failures:
    """What keeps failing, by name. A failure of another kind is told again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known: dict[Hashable, tuple[int, type[BaseException]]] = {}

    def failed(self, what: Hashable, error: Exception) -> float:
        """Tell of it, unless it is known; for how many seconds it had better be left alone."""
        count, kind = self._known.get(what, (0, None))
        if kind is type(error):
            self._log.debug("%s failed again: %s", what, error)
        elif isinstance(error, NeveError):
            self._log.warning("%s failed and is tried again: %s", what, error)
        else:  # a mistake of ours: where it was made matters more than what it says
            self._log.error("%s failed and is tried again", what, exc_info=error)
        self._known[what] = (count + 1, type(error))
        return runtime.backoff_seconds(count, PAUSE_MS, PAUSE_MS_MAX, PAUSE_JITTER)

    def succeeded(self, what: Hashable) -> None:
        if self._known.pop(what, None) is not None:
            self._log.info("%s works again", what)

    def forget(self, what: Hashable) -> None:
        """It is done by nobody any more."""
        self._known.pop(what, None)
