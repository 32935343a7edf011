"""The list of one partition's segments: a numbered series, its records, and their folding."""
