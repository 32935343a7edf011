"""Load on any Kafka-compatible broker, with confluent-kafka, as lean as a Python client can be.

`produce` and `consume` measure throughput, `latency` one record at a time, `mock` is the cluster
that librdkafka has built in, which figures are compared with. All take librdkafka's properties as
they are and give a document for JSON.
"""
