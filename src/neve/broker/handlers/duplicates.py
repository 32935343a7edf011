"""What a request names more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from neve.errors import InvalidError

T = TypeVar("T")


def each_once(asked: Sequence[T], name_of: Callable[[T], Hashable]) -> list[tuple[T, int]]:
    """Of what a request asks for, one for each name, and how many times it has that name."""
    by_name = {name_of(each): each for each in asked}
    times = Counter(map(name_of, asked))
    return [(each, times[name]) for name, each in by_name.items()]


def check_named_once(name: str, times: int) -> None:
    """Raise InvalidError if a request names something several times."""
    if times > 1:
        raise InvalidError(f"the request names {name} {times} times: name it once")
