"""Who is there, which topics exist, and who leads what: the cluster log and what it amounts to."""
