"""Modules that tests share: worlds, servers, samples and clients. See README.md."""
