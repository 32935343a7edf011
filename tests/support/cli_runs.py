"""CLI commands that talk to a broker, run inside the test process because that is fast."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import pytest

from neve.cli import main

NEVE = Path(sys.executable).with_name("neve")
BASE_MS = 1_700_000_000_000
SPANS = [
    ("start", 0, 20),
    ("17", 17, 20),
    ("47", 20, 20),
    ("-3", 17, 20),
    ("+2", 2, 20),
    ("+18", 18, 20),
    ("5:8", 5, 8),
    ("10:20", 10, 20),
    (":2", 0, 2),
    ("-3:-1", 17, 19),
    (f"@{BASE_MS + 3000}", 3, 20),
    (f"@{BASE_MS + 3001}:{BASE_MS + 6000}", 4, 6),
    (f"@:{BASE_MS + 2000}", 0, 2),
    ("@2023-11-14T22:13:25Z:2s", 5, 7),
    ("@2023-11-14:1d", 0, 20),
    ("@-1m", 20, 20),
    ("@-1h", 20, 20),
    (f"@{BASE_MS + 15000}:end", 15, 20),
]
"""What `-o` may say, and which of 20 records a second apart from BASE_MS on that means."""


def neve(bootstrap: str, *argv: str, data: bytes = b"", code: int = 0, told: str = "") -> bytes:
    """Run a command on an input; its output. It ends as said, and tells that in one line."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out:
        given.write(data)
        given.seek(0)
        said = io.StringIO()
        printed = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("neve.cli.topic.STANDARD_INPUT", given.fileno())
            patch.setattr(sys, "stdout", printed)
            patch.setattr(sys, "stderr", said)
            ended = main([*argv, "--bootstrap", bootstrap])
        assert ended == code, said.getvalue()
        if told:
            assert told in said.getvalue()
        assert len(said.getvalue().splitlines()) == (1 if told else 0), said.getvalue()
        printed.flush()
        out.seek(0)
        return out.read()
