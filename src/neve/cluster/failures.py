"""Failures of background work: logged once, and retried after a growing pause."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from neve import runtime
from neve.errors import NeveError

PAUSE_MS = 500
PAUSE_MS_MAX = 60_000
PAUSE_JITTER = 0.25


class Failures:
    """Repeated failures, by the name of the work. A failure of another type is logged again."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known: dict[Hashable, tuple[int, type[BaseException]]] = {}

    def failed(self, what: Hashable, error: Exception) -> float:
        """Log a failure, unless it is a repetition. Returns the pause before a retry in seconds."""
        count, kind = self._known.get(what, (0, None))
        if kind is type(error):
            self._log.debug("%s failed again: %s", what, error)
        elif isinstance(error, NeveError):
            self._log.warning("%s failed and will be retried: %s", what, error)
        else:  # a programming error: the traceback matters more than the text
            self._log.error("%s failed and will be retried", what, exc_info=error)
        self._known[what] = (count + 1, type(error))
        return runtime.backoff_seconds(count, PAUSE_MS, PAUSE_MS_MAX, PAUSE_JITTER)

    def succeeded(self, what: Hashable) -> None:
        if self._known.pop(what, None) is not None:
            self._log.info("%s works again", what)

    def forget(self, what: Hashable) -> None:
        """Forget the failures of work that has ended."""
        self._known.pop(what, None)
