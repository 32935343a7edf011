"""One module an API: a request in, a response out."""
