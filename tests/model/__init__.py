"""Explicit-state models of the bucket's protocols, explored exhaustively; `docs/models.md` is their page."""
