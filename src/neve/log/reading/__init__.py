"""Reading a partition that this process leads: memory, WAL, roll-ups, segments, without seams."""
