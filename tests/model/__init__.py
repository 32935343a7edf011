"""Explicit-state models of the bucket's protocols, explored exhaustively: see docs/models.md."""
