"""Fetch: sessions, reading, waiting."""
