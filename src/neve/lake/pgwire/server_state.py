"""What all sessions of a server have together."""

from __future__ import annotations

from dataclasses import dataclass, field

from neve.lake.pgwire.backend import Backend
from neve.lake.pgwire.catalog.catalog import Catalog, SessionCatalog
from neve.lake.pgwire.execution import ServerThreads
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.portals import HeldBytes
from neve.lake.pgwire.session_settings import SessionSettings


@dataclass(frozen=True)
class ServerState:
    """Owned by the server, lent to its sessions."""

    backend: Backend
    catalog: Catalog
    threads: ServerThreads
    limits: Limits
    held: HeldBytes = field(default_factory=HeldBytes)

    def catalog_for(self, user: str, process: int, settings: SessionSettings) -> SessionCatalog:
        return SessionCatalog(self.catalog, settings, user=user, process=process)
