"""Neve: a Kafka-compatible streaming log whose only durable state is a bucket."""

__version__ = "0.1.0"
