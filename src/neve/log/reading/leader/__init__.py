"""What a leader reads its partitions with: memory, WAL objects, roll-ups and segments alike."""
