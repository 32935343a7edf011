"""How a cluster grows: throughput of real brokers, and a hundred simulated ones."""
