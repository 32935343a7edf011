"""What `neve bench` runs."""
