"""Kafka's wire and its handlers, on a node of the cluster."""
