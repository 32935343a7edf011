"""Admin operations on topics, partitions, configs and the cluster.

They take and return values of the domain and raise NeveErrors. Handlers translate them to Kafka's
messages; any other port of the broker can call them as well.
"""
