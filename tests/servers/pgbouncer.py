"""pgbouncer in front of a PostgreSQL: a connection is ours for one transaction."""

from pathlib import Path
from urllib.parse import urlsplit

from .common import HOST, PASSWORD, Server, program
from .postgresql import is_asked_for_password

_SETTINGS = """
[databases]
* = host={host} port={behind}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = 10
max_client_conn = 200
server_reset_query_always = 0
"""


class PgBouncer(Server):
    """As strict as it gets: nothing that is set for a session is put back."""

    name = "pgbouncer"
    drops_root = True

    def __init__(self, behind: Server) -> None:
        self._behind = behind
        super().__init__()

    @classmethod
    def find(cls) -> dict[str, Path]:
        return {"pgbouncer": program("pgbouncer", "sbin/pgbouncer")}

    def make_url(self) -> str:
        return f"postgresql://postgres:{PASSWORD}@{HOST}:{self.port}/postgres"

    def prepare(self) -> None:
        users = self.directory / "users.txt"
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings = _SETTINGS.format(
            host=HOST, port=self.port, behind=urlsplit(self._behind.url).port, users=users
        )
        (self.directory / "pgbouncer.ini").write_text(settings)

    def command(self) -> list[str]:
        return [str(self.programs["pgbouncer"]), str(self.directory / "pgbouncer.ini")]

    def is_ready(self) -> bool:
        return is_asked_for_password(self)
