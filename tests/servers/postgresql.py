"""PostgreSQL: Debian's, or the one inside the wheel pgserver."""

import signal
import struct
from pathlib import Path

from .common import HOST, PASSWORD, Server, program

_WORDS = b"user\0postgres\0database\0postgres\0\0"
HELLO = struct.pack("!ii", 8 + len(_WORDS), 3 << 16) + _WORDS
ASKS_FOR_PASSWORD = b"R"  # the first answer; an E says that it is still starting up


class PostgreSQL(Server):
    """A cluster of its own; user `postgres`, with a password that is checked."""

    name = "postgresql"
    stops_by = signal.SIGINT  # fast: does not wait for clients to leave
    drops_root = True
    passing_troubles = (
        *Server.passing_troubles,
        "still in use",  # shared memory of backends that outlive a killed server
    )

    @classmethod
    def find(cls) -> dict[str, Path]:
        wheel = "lib/python3*/site-packages/pgserver/pginstall/bin"
        return {name: program(name, f"{wheel}/{name}") for name in ("postgres", "initdb")}

    def make_url(self) -> str:
        return f"postgresql://postgres:{PASSWORD}@{HOST}:{self.port}/postgres"

    def prepare(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self.run(
            *(self.programs["initdb"], "-D", self.directory / "data", "-U", "postgres"),
            *("-A", "scram-sha-256", f"--pwfile={password}"),
            *("-E", "UTF8", "--no-locale", "--no-sync"),
        )

    def command(self) -> list[str]:
        return [
            *(str(self.programs["postgres"]), "-D", str(self.directory / "data")),
            *("-h", HOST, "-p", str(self.port), "-k", ""),
            *("-c", "max_connections=200"),
        ]

    def is_ready(self) -> bool:
        return is_asked_for_password(self)


def is_asked_for_password(server: Server) -> bool:
    """Whether there is somebody who talks like a PostgreSQL that has started."""
    return server.ask(HELLO)[:1] == ASKS_FOR_PASSWORD
