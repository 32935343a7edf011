"""The leader's readers of its partitions, from memory, WAL objects, roll-ups and segments."""
