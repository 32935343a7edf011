"""Segments and their index bundles: what the write-ahead log settles into, one partition each."""
