"""The Fetch API: its handler, its sessions, and the memory of its responses."""
