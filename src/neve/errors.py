"""One root error and a handful of kinds.

A kind says what a caller can do about it; the message says what happened, to what, and what to do.
One file of the broker maps kinds to Kafka's codes, so nothing here knows about the wire.
"""

from __future__ import annotations


class NeveError(Exception):
    """The root of every error that Neve raises on purpose."""


class InvalidError(NeveError):
    """The caller's input is wrong: correct it and call again."""


class UnsupportedError(NeveError):
    """The bytes are well-formed but from a newer Neve, or ask for what this one does not do."""


class DamagedError(NeveError):
    """Bytes in the bucket fail their checks. `key` names the object."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key or 'object'} is damaged: {reason}")
        self.key = key
        self.reason = reason


class FencedError(NeveError):
    """Somebody else has taken over what this process led; nothing more may be written here."""


class ClosedError(NeveError):
    """The component was closed while, or before, it was asked."""


class FullError(NeveError):
    """A bounded buffer or queue is full: wait, or send less."""


class LostRangeError(NeveError):
    """Offsets that ought to be readable are not there: retention passed them, or they are gone."""


class StoreError(NeveError):
    """A call to the bucket did not succeed. `key` names what it was about."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class NotFoundError(StoreError):
    """No object has this key."""


class ExistsError(StoreError):
    """A create was refused because the key is taken. Reading the object tells by whom."""


class ConflictError(StoreError):
    """A create was refused for a passing conflict (409): undecided, nothing may have landed."""


class UnavailableError(StoreError):
    """The store failed in a way that passes: 5xx, SlowDown, a time-out, a reset connection.

    A write that ends like this may or may not have taken effect, now or later.
    """


class DeniedError(StoreError):
    """The store refused our credentials (401, 403)."""


class StoreFailedError(StoreError):
    """The store cannot do this and will not by itself: disk full, read-only, a missing bucket."""
