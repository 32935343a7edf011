"""Long runs against real broker processes: kill -9 again and again, and stores that go wrong."""
