"""What every process that serves shares: addresses, the HTTP port, metrics as text, log lines."""
