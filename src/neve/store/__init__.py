"""The store port, its implementations, and the wrappers around them."""
