"""WAL, segments, indexes, manifests, caches and readers: all that lies between a batch and a key."""
