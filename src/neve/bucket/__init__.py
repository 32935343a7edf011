"""Reading a bucket without a broker: what `neve.open` gives, and what checks and mends a bucket."""
