"""PostgreSQL's system catalogue for clients: built from an engine's relations, in SQLite."""
