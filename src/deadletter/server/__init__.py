"""The server: HTTP API, queue server, access, health and metrics."""
