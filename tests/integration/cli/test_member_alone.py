"""`neve topic consume -g` when its broker goes away with what was written not yet committed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.brokers import start_broker
from support.cli_runs import NEVE, neve

TIMEOUT_SECONDS, MARGIN_SECONDS = 8, 20


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_ctrl_c_waits_no_longer_for_a_commit_than_for_a_broker(
    tmp_path: Path, how: signal.Signals
) -> None:
    broker = start_broker(tmp_path / "bucket", tmp_path / "log")
    try:
        neve(broker.bootstrap, "topic", "create", "t")
        neve(broker.bootstrap, "topic", "produce", "t", data=b"value\n")
        command = [NEVE, "topic", "consume", "t", "-g", "g", "--follow"]
        command += ["--bootstrap", broker.bootstrap, "--timeout", str(TIMEOUT_SECONDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"value\n"
            broker.process.send_signal(how)
            # Until it is dead or stopped, the broker may still take a commit.
            if how == signal.SIGKILL:
                broker.process.wait()
            else:
                os.waitpid(broker.process.pid, os.WUNTRACED)
            began_at = time.monotonic()
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=60)[1]
            assert time.monotonic() - began_at < TIMEOUT_SECONDS + MARGIN_SECONDS
            assert b"neve: the written records are not committed" in errors
            assert process.returncode == 1
    finally:
        broker.kill()
