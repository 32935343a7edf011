"""`neve serve --brokers N`: several broker processes on one machine under one supervisor.

One broker uses about one core. The brokers have node ids and ports in a row, and are ordinary
members of the cluster. A broker that fails is started again, after a pause that grows. The
supervisor ends when all brokers have stopped after a signal, or when one fails to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys

from neve import runtime
from neve.cli.output import SettingsFlags
from neve.serving.addresses import Address, parse_address
from neve.settings import Settings

log = logging.getLogger("neve.serve")

RESTART_PAUSE_MS, RESTART_PAUSE_MS_MAX = 500, 30_000
# A broker that has lived this long has not failed because of how it was started.
SETTLED_SECONDS = 10.0
# Codes that mean the same at the next attempt: invalid flags, and another process of this node id.
FINAL_CODES = (2, 3)


async def supervise(settings: Settings, flags: SettingsFlags, count: int) -> int:
    """Run `count` brokers with these flags. Returns the exit code: the greatest of theirs."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    brokers = [_Supervised(settings, flags, at, stopping) for at in range(count)]

    def stop(number: int) -> None:
        again = stopping.is_set()
        stopping.set()
        for broker in brokers:
            broker.signal(number if again else signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    running = [runtime.spawn(broker.run()) for broker in brokers]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.is_set():
        log.error("a broker cannot be started: stopping all of them")
        stop(signal.SIGTERM)
    await asyncio.wait(running)
    return max(each.result() for each in running)


class _Supervised:
    """One of the brokers: its process, and the next one if that fails."""

    def __init__(
        self, settings: Settings, flags: SettingsFlags, at: int, stopping: asyncio.Event
    ) -> None:
        self._node_id = settings.broker.node_id + at
        named = {"broker.node.id": str(self._node_id)}
        named["broker.listen"] = str(_shifted("broker.listen", settings.broker.listen, at))
        if settings.broker.advertise.strip():
            advertise = _shifted("broker.advertise", settings.broker.advertise, at)
            named["broker.advertise"] = str(advertise)
        if "http.listen" in settings.given and settings.http.listen.strip():
            named["http.listen"] = str(_shifted("http.listen", settings.http.listen, at))
        others = [each for each in flags.assignments if each.partition("=")[0].strip() not in named]
        self._command = [sys.executable, "-m", "neve.cli", "serve"]
        if flags.config is not None:
            self._command += ["--config", str(flags.config)]
        for assignment in (*others, *(f"{name}={value}" for name, value in named.items())):
            self._command += ["--set", assignment]
        self._stopping = stopping
        self._process: asyncio.subprocess.Process | None = None

    def signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def run(self) -> int:
        """Run the broker until it is stopped. Returns its last exit code."""
        backoff = runtime.Backoff(RESTART_PAUSE_MS, RESTART_PAUSE_MS_MAX)
        while True:
            started_at = runtime.monotonic()
            # A session of its own: Ctrl-C reaches the brokers through the supervisor only.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, start_new_session=True
            )
            if self._stopping.is_set():
                self.signal(signal.SIGTERM)
            code = await self._process.wait()
            if self._stopping.is_set() or code in FINAL_CODES:
                return max(code, 0)
            log.error("broker %d has ended with code %d: starting it again", self._node_id, code)
            if runtime.monotonic() - started_at > SETTLED_SECONDS:
                backoff = runtime.Backoff(RESTART_PAUSE_MS, RESTART_PAUSE_MS_MAX)
            await backoff.pause()


def _shifted(setting: str, text: str, by: int) -> Address:
    """Return an address with the port of the broker at this place in the row."""
    address = parse_address(setting, text)
    return Address(address.host, address.port + by if address.port else 0)
