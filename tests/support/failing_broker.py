"""A program: `neve serve` on a store that fails permanently on request.

    python failing_broker.py CONTROL serve --store …

While the file CONTROL exists, its content decides which calls fail: `full` fails every write, as a
full disk does; `denied` fails every call, as revoked credentials do.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from neve.cli import main
from neve.errors import DeniedError
from neve.store import folder
from neve.store import url as store_url
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")


class RevocableStore(Wrapper):
    """Credentials that somebody may take back."""

    def __init__(self, inner: Store, control: Path) -> None:
        super().__init__(inner)
        self._control = control

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if says(self._control) == "denied":
            raise DeniedError(call.key, "403: the access key was revoked")
        return await work()


def says(control: Path) -> str:
    return control.read_text().strip() if control.exists() else ""


def fill_the_disk(control: Path) -> None:
    write_all = folder._write_all

    def written(descriptor: int, data: Any) -> None:
        if says(control) == "full":
            write_all(descriptor, memoryview(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(descriptor, data)

    folder._write_all = written


def run() -> int:
    control = Path(sys.argv[1])
    open_store = store_url.open_store
    store_url.open_store = lambda url, settings: RevocableStore(open_store(url, settings), control)
    fill_the_disk(control)
    return main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(run())
