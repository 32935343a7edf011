"""A server that gives PostgreSQL clients read-only access to a query engine.

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
