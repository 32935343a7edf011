"""How many of the process's file descriptors clients may take.

Each connection takes one. The store's connections and files, the HTTP port and the process itself
must never be without: a broker that cannot open a file cannot commit.
"""

from __future__ import annotations

import logging
import resource

from neve.settings import Settings

log = logging.getLogger("neve.broker")

PROCESS_DESCRIPTORS = 64
"""Standard streams, listeners, the event loop, caches on disk, what libraries open."""
UNGATED_STORE_CALLS = 256
"""How many calls of the store are expected at once where store.concurrency.max is 0."""
DESCRIPTORS_OF_A_CALL = 2
"""A connection or a file, and the folder that is synced."""


def reserved_descriptors(settings: Settings) -> int:
    """What is kept from clients."""
    calls = settings.store.concurrency_max or UNGATED_STORE_CALLS
    return PROCESS_DESCRIPTORS + settings.http.connections_max + DESCRIPTORS_OF_A_CALL * calls


def connections_allowed(settings: Settings) -> int:
    """`broker.connections.max`, or as many as there are descriptors for.

    The process's soft limit is raised first, as far as its hard limit lets it.
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
    """The soft limit, after it was raised to `needed` where it was lower and may be raised."""
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
