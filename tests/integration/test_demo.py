"""`neve demo` as a person runs it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def test_the_demonstration_ends_by_itself_and_well() -> None:
    neve = Path(sys.executable).with_name("neve")
    started = time.monotonic()
    done = subprocess.run([neve, "demo"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "Every acknowledged record was there once" in done.stdout
    assert "as Arrow: 25000 rows" in done.stdout
    folder = next(word for word in done.stdout.split() if "neve-demo-" in word)
    assert not Path(folder).exists()
    assert time.monotonic() - started < 60
