"""`neve` of feature level 1, as far as upgrades need it. For tests. Run this file in its place.

A broker of level 1 leads every partition and neither watches nor answers other brokers. It stops
for good, with exit code 3, once another broker has taken over.
"""

from __future__ import annotations

import sys
from typing import Any

from neve.cli import serve
from neve.cluster import log, log_view, records
from neve.cluster.membership import Membership
from neve.errors import NeveError

LEVEL = 1


def _register(**given: Any) -> records.Register:
    given.pop("public_key")
    return records.Register(**given)


def _exit_code(failure: NeveError) -> int:
    code = _exit_code_now(failure)
    return serve.EXIT_FENCED if code == serve.EXIT_EXPIRED else code


_exit_code_now = serve._exit_code


def become_the_previous_version() -> None:
    for module in (records, log, log_view):
        module.FEATURE_LEVEL = LEVEL  # type: ignore[attr-defined]
    log.Register = _register  # type: ignore[assignment,misc]
    Membership.start = lambda _: None  # type: ignore[method-assign]
    serve._exit_code = _exit_code


if __name__ == "__main__":
    from neve.cli import main

    become_the_previous_version()
    sys.exit(main())
