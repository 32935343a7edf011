"""Topics, partitions, resources and configs that a request names more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from neve.errors import InvalidError

T = TypeVar("T")


def each_once(requested: Sequence[T], name_of: Callable[[T], Hashable]) -> list[tuple[T, int]]:
    """Return the last item of each name, with how many items have that name."""
    by_name = {name_of(each): each for each in requested}
    times = Counter(map(name_of, requested))
    return [(each, times[name]) for name, each in by_name.items()]


def check_named_once(name: str, times: int) -> None:
    """Raise InvalidError if a request names something several times."""
    if times > 1:
        raise InvalidError(f"the request names {name} {times} times: name it once")
