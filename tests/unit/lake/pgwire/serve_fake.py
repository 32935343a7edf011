"""A server over the fake engine in a process of its own: prints its port, ends with its input."""

from __future__ import annotations

import sys

from neve import runtime
from unit.lake.pgwire.fake_engine import FakeEngine
from unit.lake.pgwire.wire_client import running


async def main() -> None:
    async with running(FakeEngine()) as server:
        print(server.port, flush=True)
        await runtime.offload(sys.stdin.read)


if __name__ == "__main__":
    runtime.run(main())
