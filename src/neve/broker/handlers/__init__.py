"""One module for each API: decode a request, call a service of `admin`, encode the response."""
