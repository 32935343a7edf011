"""Kafka's protocol, pure: bytes in, messages out, and back. No socket, no clock, no store."""
