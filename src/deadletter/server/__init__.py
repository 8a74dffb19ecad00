"""The server: HTTP API, queue server, access, and the place of the console."""
