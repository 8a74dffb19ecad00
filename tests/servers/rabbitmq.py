"""RabbitMQ: Debian's, run without the wrapper that wants a user of its own."""

from pathlib import Path

from .common import HOST, Missing, Server, free_port, program

# The broker's helper that maps names to ports is ours too: left alone the broker
# starts one that outlives it.
BOTH = 'epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 & exec "$0"'


class RabbitMQ(Server):
    """A broker of its own, user and password `guest`; takes some seconds to start."""

    name = "rabbitmq"
    ready_within = 90.0
    passing_troubles = (*Server.passing_troubles, "already running", "eaddrinuse")

    @classmethod
    def find(cls) -> dict[str, Path]:
        for place in ("/usr/lib/rabbitmq/bin", "/usr/local/lib/rabbitmq/bin"):
            script = Path(place) / "rabbitmq-server"
            if script.exists():
                return {"server": script, "epmd": program("epmd")}
        raise Missing("no RabbitMQ here: run `make services` as root on Debian")

    def make_url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    def prepare(self) -> None:
        self._epmd, self._inner = free_port(), free_port()
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {HOST}:{self.port}\n"
            "log.console = true\nlog.file = false\nloopback_users = none\n"
        )
        (self.directory / "enabled_plugins").write_text("[].\n")

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", BOTH, str(self.programs["server"])]

    def environment(self) -> dict[str, str]:
        here = self.directory
        return {
            "HOME": str(here),
            "RABBITMQ_NODENAME": f"dlq{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": f"{here}/mnesia",
            "RABBITMQ_LOG_BASE": f"{here}/log",
            "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/enabled_plugins",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            "RABBITMQ_CONF_ENV_FILE": f"{here}/none",
            "RABBITMQ_DIST_PORT": str(self._inner),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2"
            ),
        }

    def is_ready(self) -> bool:
        # A method frame (1) on channel 0: the broker introduces itself.
        return self.ask(b"AMQP\0\0\x09\x01").startswith(b"\x01\0\0")
