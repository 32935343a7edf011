"""A read-only query engine behind PostgreSQL's wire protocol.

async with serve(engine, ServeOptions(users={"me": "secret"})) as server:
    print(server.port)
"""

from neve.lake.pgwire.backend import Backend, Column, Relation, Result
from neve.lake.pgwire.options import Limits, ServeOptions, Tls
from neve.lake.pgwire.server import PostgresServer, serve

__all__ = [
    "Backend",
    "Column",
    "Limits",
    "PostgresServer",
    "Relation",
    "Result",
    "ServeOptions",
    "Tls",
    "serve",
]
