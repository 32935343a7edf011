"""WAL, segments, indexes, manifests, caches, readers: what lies between a batch and a key."""
