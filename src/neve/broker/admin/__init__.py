"""Services for topics, partitions, offsets, configs and the cluster.

They take the components that they need, never the broker, return domain values and raise
NeveErrors. Handlers translate for Kafka's clients, and the HTTP port uses the same services. Groups
have their service in `neve.coordinator`.
"""
