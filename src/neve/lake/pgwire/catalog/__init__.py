"""PostgreSQL's own tables, as clients ask them: made from an engine's relations, kept in SQLite."""
