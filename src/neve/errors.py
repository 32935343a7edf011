"""Neve's exceptions: one base class and a class for each way to react.

The class says what a caller can do. The message says what happened, to what, and what to do.
The broker maps these classes to Kafka's error codes in one file; nothing here depends on the wire.
"""

from __future__ import annotations


class NeveError(Exception):
    """Base class of every error that Neve raises deliberately."""


class InvalidError(NeveError):
    """The input is invalid. Correct it and call again."""


class UnsupportedError(NeveError):
    """The input is well-formed but needs a feature or a format version that this Neve lacks."""


class DamagedError(NeveError):
    """An object in the bucket fails its checks. `key` names the object."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key or 'object'} is damaged: {reason}")
        self.key = key
        self.reason = reason


class FencedError(NeveError):
    """Another broker has taken over. This process must not write to the partition or stream."""


class ClosedError(NeveError):
    """The component was closed before or during the call."""


class FullError(NeveError):
    """A bounded buffer or queue is full. Wait, or send less."""


class LostRangeError(NeveError):
    """Offsets that were requested are missing: retention deleted them, or they were lost.

    `log_start` is set if all offsets that are missing were removed: reading can go on from there.
    """

    def __init__(self, reason: str, *, log_start: int | None = None) -> None:
        super().__init__(reason)
        self.log_start = log_start


class StoreError(NeveError):
    """A call to the store failed. `key` names the object or prefix."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class NotFoundError(StoreError):
    """The object does not exist."""


class ExistsError(StoreError):
    """The store refused a create because the key exists. Read the object to find its writer."""


class ConflictError(StoreError):
    """The store refused a create for a transient conflict (409). Undecided: read the key."""


class UnavailableError(StoreError):
    """A transient failure of the store: 5xx, SlowDown, a timeout, a reset connection.

    A write that fails like this may have taken effect, or may still take effect later.
    """


class DeniedError(StoreError):
    """The store rejected the credentials (401, 403)."""


class StoreFailedError(StoreError):
    """A permanent failure of the store: disk full, read-only, or a missing bucket."""
