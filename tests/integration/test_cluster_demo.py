"""`neve cluster demo` as a person runs it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SECONDS_MAX = 300
"""It takes half a minute on a quiet machine. Tests run four at a time on two cores."""


def test_the_tour_ends_by_itself_and_leaves_nothing_behind() -> None:
    neve = Path(sys.executable).with_name("neve")
    running = subprocess.Popen(
        [neve, "cluster", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = running.communicate(timeout=SECONDS_MAX)
        assert running.returncode == 0, out + err
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)  # no broker is left
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    # Numbers are checked by the demonstration itself, which fails if one is wrong.
    assert "broker declared dead node=2" in err
    assert "all 10000 orders are acknowledged" in out
    assert "every broker leads what it should: 2 partitions were moved" in out
    assert "node 3 is drained: it leads nothing and can be stopped" in out
    assert "node 3 is removed" in out
    assert "30000 orders, each once." in out
    folder = next(word for word in out.split() if "neve-cluster-" in word)
    assert not Path(folder).exists()
    ports = [int(port) for port in re.findall(r"clients on 127\.0\.0\.1:(\d+)", out)]
    assert len(ports) == 4
    for port in ports:
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", port))
