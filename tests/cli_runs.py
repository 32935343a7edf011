"""Commands that speak to a broker, run in the tests' own process, which is quick."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import pytest

from neve.cli import main

NEVE = Path(sys.executable).with_name("neve")


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
