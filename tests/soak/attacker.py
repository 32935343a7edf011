"""One attack in a process of its own: `attacker.py MODULE NAME PORT SECONDS`.

It prepares, writes a line, waits for one, and attacks for so many seconds from then on.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

PREPARE_SECONDS = 300
LEAVE_SECONDS = 60
PROGRAM = Path(__file__)


class Attacker:
    """The process, as a test sees it."""

    def __init__(self, module: str, name: str, port: int, seconds: float) -> None:
        tests = str(PROGRAM.parent.parent)
        path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), module, name, str(port), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        self._seconds = seconds

    def prepare(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "prepared\n", "the attack could not be prepared"

    def attack(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        """Wait until it has left; its exit code."""
        return self._process.wait(self._seconds + LEAVE_SECONDS)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def main(module: str, name: str, port: str, seconds: str) -> None:
    from support.hostile_attacks import Attack, Target

    attacks: list[Attack] = importlib.import_module(module).ATTACKS
    (attack,) = [each for each in attacks if each.name == name]
    attack.prepare(Target(int(port), time.monotonic() + PREPARE_SECONDS))
    print("prepared", flush=True)
    if sys.stdin.readline():
        attack.run(Target(int(port), time.monotonic() + float(seconds)))
    # Sockets close now, whatever of them an attack has left open.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
