"""Explicit-state models of the bucket's protocols: see docs/contributors/models.md."""
