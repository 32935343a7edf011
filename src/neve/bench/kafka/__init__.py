"""Loads for any Kafka-compatible broker, with confluent-kafka and minimal overhead per record.

`produce` and `consume` measure throughput, and `latency` sends one record at a time. They take
librdkafka's properties unchanged and return a result that can be written as JSON. `mock` runs the
mock cluster that is part of librdkafka, as a reference.
"""
