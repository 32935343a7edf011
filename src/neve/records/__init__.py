"""Codec of Kafka's record batches. Pure: bytes in, bytes or columns out."""
