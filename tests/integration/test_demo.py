"""`neve demo` as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TWO_MINUTES = 120
"""The demonstration's own promise. Tests run four at a time on two cores, so it gets some more."""


def test_the_demonstration_ends_by_itself_and_well() -> None:
    neve = Path(sys.executable).with_name("neve")
    done = subprocess.run(
        [neve, "demo"], capture_output=True, text=True, check=False, timeout=2 * TWO_MINUTES
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    # Numbers are checked by the demonstration itself, which fails if one is wrong.
    assert "wrote 25000 rows to lake.orders" in done.stdout
    assert "wrote 5000 rows to lake.orders" in done.stdout
    assert "Turin        5876 orders" in done.stdout
    assert "30000 orders, each once; as Arrow: 30000 rows" in done.stdout
    folder = next(word for word in done.stdout.split() if "neve-demo-" in word)
    assert not Path(folder).exists()
