"""One port to the bucket, and the wrappers over it."""
