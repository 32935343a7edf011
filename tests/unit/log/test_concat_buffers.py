"""Many buffers in one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from neve.log.concat_buffers import RUN_BYTES, SMALL_BYTES, concat_buffers
from neve.store.aligned_buffers import BLOCK_BYTES


@pytest.mark.parametrize("seed", range(8))
def test_parts_lie_one_behind_the_other(seed: int) -> None:
    chance = random.Random(seed)
    sizes = (0, 1, 61, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, RUN_BYTES)
    parts = [chance.randbytes(chance.choice(sizes)) for _ in range(chance.randrange(60))]
    views = [memoryview(bytearray(part)) if chance.random() < 0.5 else part for part in parts]
    assert concat_buffers(views) == b"".join(parts)


@pytest.mark.parametrize("size", [3, RUN_BYTES])
def test_what_was_gathered_cannot_be_changed(size: int) -> None:
    assert concat_buffers([bytes(size), b"def"]).readonly


def test_a_disk_can_take_what_is_large_from_where_it_lies() -> None:
    for size in (RUN_BYTES, RUN_BYTES + 1, 3 * RUN_BYTES + 7):
        lies = np.frombuffer(concat_buffers([bytes(size)]), np.uint8).__array_interface__["data"][0]
        assert lies % BLOCK_BYTES == 0
