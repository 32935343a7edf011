"""The rule for a listed object that is gone.

Tiering, roll-ups, merging and retention move records while they are read. So a reader that finds a
listed object gone resolves again and continues at the same offset. It gives up if the same object
is gone twice, or after RESOLVES_MAX objects: then the records are lost, damaged, or moved too fast.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.errors import DamagedError, LostRangeError, NeveError, NotFoundError, UnavailableError
from neve.log.manifest.skips import OffsetRange

# Objects that may be gone one after another before a read gives up.
RESOLVES_MAX = 20


class NowhereError(NotFoundError):
    """No listed object holds an offset: lost, unless the list is out of date."""

    def __init__(self, missing: Sequence[OffsetRange]) -> None:
        self.offsets = ", ".join(f"{first} to {end - 1}" for first, end in missing)
        super().__init__(f"offsets {self.offsets}", "no listed object holds them")


class GoneObjects:
    """The objects that one read found gone since it last made progress."""

    def __init__(self) -> None:
        self._keys: list[str] = []

    def is_final(self, missing: NotFoundError) -> bool:
        """Return whether to give up, because of this object or of how many are gone."""
        return self.is_repeated(missing) or len(self._keys) >= RESOLVES_MAX

    def is_repeated(self, missing: NotFoundError) -> bool:
        """Return whether this object was gone before: it is still listed."""
        return missing.key in self._keys

    def note(self, missing: NotFoundError) -> None:
        self._keys.append(missing.key)

    def clear(self) -> None:
        """Forget all: the read made progress."""
        self._keys.clear()


def final_error(name: str, missing: NotFoundError, *, still_listed: bool) -> NeveError:
    """Return why a read of the partition `name` gives up on a missing object."""
    if isinstance(missing, NowhereError):
        return LostRangeError(
            f"{name}: neither a segment nor a stream has offsets {missing.offsets}: run "
            "`neve storage verify`"
        )
    if still_listed:
        return DamagedError(missing.key, "it is listed but missing")
    return UnavailableError(missing.key, f"{name} is moved faster than it is read: read again")
