"""Kafka's record batches, pure: bytes in, bytes or columns out."""
