"""How many of the process's file descriptors clients may take.

Each connection takes one. Some are reserved for the store's connections and files, the HTTP port
and the process itself: a broker that cannot open a file cannot commit.
"""

from __future__ import annotations

import logging
import resource

from neve.settings import Settings

log = logging.getLogger("neve.broker")

PROCESS_DESCRIPTORS = 64
"""For standard streams, listeners, the event loop, caches on disk and libraries."""
UNGATED_STORE_CALLS = 256
"""The expected number of concurrent store calls if store.concurrency.max is 0 (no limit)."""
DESCRIPTORS_OF_A_CALL = 2
"""A connection or a file, and the folder that is synced."""


def reserved_descriptors(settings: Settings) -> int:
    """Return the number of descriptors that clients may not use."""
    calls = settings.store.concurrency_max or UNGATED_STORE_CALLS
    return PROCESS_DESCRIPTORS + settings.http.connections_max + DESCRIPTORS_OF_A_CALL * calls


def connections_allowed(settings: Settings) -> int:
    """Return `broker.connections.max`, or fewer if the process may not open enough files.

    Raises the soft limit of the process first, up to its hard limit.
    """
    wanted, reserved = settings.broker.connections_max, reserved_descriptors(settings)
    limit = _raised(wanted + reserved)
    if limit >= wanted + reserved:
        return wanted
    allowed = max(1, limit - reserved, limit // 2)
    log.warning(
        "broker.connections.max is %d, but this process may open %d files (RLIMIT_NOFILE), of "
        "which the store and HTTP need up to %d: it accepts %d connections. Raise the limit to %d "
        "(ulimit -n, LimitNOFILE of systemd), or lower broker.connections.max",
        wanted,
        limit,
        reserved,
        allowed,
        wanted + reserved,
    )
    return allowed


def _raised(needed: int) -> int:
    """Raise the soft limit to `needed` if it is lower and may be raised. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return needed
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft >= raised:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):
        return soft  # the system has a lower bound of its own
    return raised
