"""One attack on one broker with good clients beside it, and what must hold meanwhile.

Memory stays below its bound, nobody waits long, all recover soon after the attacker has left, and
the log says each thing once in a while.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from soak.attacker import Attacker
from soak.bystanders import TOPIC, Bystander, good_clients
from soak.wire import Wire
from support.brokers import RunningBroker, start_broker
from support.hostile import create_topic, resident_bytes
from support.hostile_attacks import Attack

MIB = 1 << 20
MEMORY_BYTES = 512 * MIB
OVER_BYTES = 64 * MIB
WAIT_SECONDS_MAX = 1.0
RECOVERED_SECONDS = 10.0
LOG_WINDOW_SECONDS = 10.0
SETTLE_SECONDS = 1.0
SAMPLE_SECONDS = 0.02
_LINE = re.compile(r"^\S+ (?:WARNING|ERROR|CRITICAL) (.*)$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


@dataclass
class Outcome:
    """What was seen. `violations` says what must not be."""

    attack: str
    peak_bytes: int = 0
    slowest: dict[str, float] = field(default_factory=dict)
    recovered_seconds: float = 0.0
    lines: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class _Resident(threading.Thread):
    """Samples a process's resident memory."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._broker = broker
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with contextlib.suppress(OSError, IndexError):
                self.peak_bytes = max(self.peak_bytes, resident_bytes(self._broker))

    def stop(self) -> None:
        self._over.set()
        self.join()


def run_attack(
    attack: Attack,
    module: str,
    folder: Path,
    seconds: float,
    *,
    wait_seconds_max: float = WAIT_SECONDS_MAX,
) -> Outcome:
    """Start a broker, attack it for so long, and look at what became of it and its clients.

    `module` is where the attack is found by the attacker's process.
    """
    settings = {"store_folder_fsync": False, "broker_memory_bytes": MEMORY_BYTES} | dict(
        attack.settings
    )
    bound = int(str(settings["broker_memory_bytes"])) + OVER_BYTES
    broker = start_broker(folder / "bucket", folder / "log", **settings)
    attacker = Attacker(module, attack.name, broker.port, seconds)
    outcome = Outcome(attack.name)
    try:
        attacker.prepare()
        with Wire(broker.port, "prepares") as wire:
            create_topic(wire, TOPIC)
        with _watched(broker) as (resident, clients):
            time.sleep(SETTLE_SECONDS)
            logged = len(broker.log)
            began = time.monotonic()
            attacker.attack()
            code = attacker.wait()
            left = time.monotonic()
            time.sleep(RECOVERED_SECONDS if seconds > RECOVERED_SECONDS else SETTLE_SECONDS)
        outcome.peak_bytes = resident.peak_bytes
        if code:
            outcome.violations.append(f"the attack itself failed with exit code {code}")
        if broker.process.poll() is not None:
            outcome.violations.append(f"the broker ended with {broker.process.returncode}")
        if outcome.peak_bytes > bound:
            outcome.violations.append(
                f"resident memory was {outcome.peak_bytes >> 20} MiB of {bound >> 20} MiB"
            )
        _judge_waits(outcome, clients, began, left, wait_seconds_max)
        _judge_log(outcome, broker.log[logged:], time.monotonic() - began)
        if broker.process.poll() is None and (code := broker.stop()):
            last = "".join(broker.log.splitlines(keepends=True)[-3:])
            outcome.violations.append(f"the broker ended with {code} when it was stopped: {last}")
    finally:
        attacker.close()
        if broker.process.poll() is None:
            broker.kill()
    return outcome


@contextlib.contextmanager
def _watched(broker: RunningBroker) -> Iterator[tuple[_Resident, list[Bystander]]]:
    resident, clients = _Resident(broker), good_clients(broker)
    for thread in (resident, *clients):
        thread.start()
    try:
        yield resident, clients
    finally:
        for client in clients:
            client.stop()
        resident.stop()


def _judge_waits(
    outcome: Outcome, clients: list[Bystander], began: float, left: float, seconds_max: float
) -> None:
    for client in clients:
        seen = [each for each in client.requests if each.ended >= began]
        during = [each for each in seen if each.began < left]
        outcome.slowest[client.name] = max((each.seconds for each in during), default=0.0)
        failures = Counter(each.failure for each in during if each.failure)
        for failure, count in failures.items():
            outcome.violations.append(f"the {client.name} failed {count} times: {failure}")
        if outcome.slowest[client.name] > max(seconds_max, client.wait_seconds_least):
            outcome.violations.append(
                f"the {client.name} waited {outcome.slowest[client.name]:.1f} s"
            )
        after = [each for each in seen if each.ended >= left and not each.failure]
        if not after or after[0].ended - left > RECOVERED_SECONDS:
            outcome.violations.append(f"the {client.name} did not recover")
        else:
            outcome.recovered_seconds = max(outcome.recovered_seconds, after[0].ended - left)


def _judge_log(outcome: Outcome, text: str, seconds: float) -> None:
    most = 1 + int(seconds / LOG_WINDOW_SECONDS)
    outcome.lines = Counter(_NUMBER.sub("N", line) for line in _LINE.findall(text))
    if "Traceback" in text:
        outcome.violations.append("the log has a traceback")
    for line, count in outcome.lines.items():
        if count > most:
            outcome.violations.append(f"logged {count} times in {seconds:.0f} s: {line}")
