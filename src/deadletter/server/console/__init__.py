"""The web console: pages made on the server, their parts, and the files they load."""
