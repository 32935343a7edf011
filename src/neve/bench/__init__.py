"""The benchmarks and loads of `neve bench`."""
