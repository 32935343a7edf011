"""The Spark data source `neve`: a bucket's topics as rows, for batches and streams, and back."""
