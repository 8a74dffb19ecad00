"""The same servers over TLS: they show a certificate, and want to see the client's."""

import socket
from pathlib import Path
from urllib.parse import urlencode

from pymongo import MongoClient

from .common import HOST, PASSWORD, Server, free_port
from .kafka import Kafka
from .mongodb import MongoDB
from .nats import Nats
from .papers import Front, Papers
from .postgresql import ASKS_FOR_PASSWORD, HELLO, PostgreSQL
from .rabbitmq import RabbitMQ
from .redis import Redis


class Secure(Server):
    """
    What is the same for all of them; stands before the server's own class.

    `url` has everything. `strange` trusts another authority, `bare` shows no
    certificate, `plain` knows nothing of TLS.
    """

    scheme: str
    names: tuple[str, ...]  # parameters: the authority, the client's certificate, its key
    always: tuple[tuple[str, str], ...] = ()

    @classmethod
    def variable(cls) -> str:
        return f"DLQ_TEST_SECURE_{cls.name.upper()}_URL"

    @property
    def papers(self) -> Papers:
        return Papers(self.directory)

    @property
    def strange(self) -> str:
        return self._with(self.papers.stranger)

    @property
    def bare(self) -> str:
        return self._with(self.papers.authority, shown=False)

    @property
    def plain(self) -> str:
        return super().make_url()

    def make_url(self) -> str:
        return self._with(self.papers.authority)

    def prepare(self) -> None:
        super().prepare()
        self.papers.write(int(self._user) if self._user.isdigit() else None)

    def ask(self, question: bytes = b"", size: int = 4096) -> bytes:
        connection = socket.create_connection((HOST, self.port), 2)
        with self.papers.context().wrap_socket(connection, server_hostname=HOST) as secured:
            if question:
                secured.sendall(question)
            return secured.recv(size)

    def _with(self, authority: Path, *, shown: bool = True) -> str:
        trust, *ours = self.names
        given = {**dict(self.always), trust: str(authority)}
        if shown:
            given |= dict.fromkeys(ours, str(self.papers.client))
        url = super().make_url()
        url = f"{self.scheme}://{url.partition('://')[2]}"
        return f"{url}{'&' if '?' in url else '?'}{urlencode(given)}"


class SecureRedis(Secure, Redis):
    """
    Behind something that ends TLS for it: not every build of it can by itself.

    A client cannot tell them apart: both begin with TLS, and nothing else.
    """

    scheme = "rediss"
    names = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

    def prepare(self) -> None:
        super().prepare()
        self._inner = free_port()
        self._front = Front(self.papers.server_context(), self.port, self._inner)

    def command(self) -> list[str]:
        return [*super().command(), "--port", str(self._inner)]

    def is_ready(self) -> bool:
        return self.ask(f"AUTH {PASSWORD}\r\n".encode()).startswith(b"+OK")

    def close(self) -> None:
        self._front.close()
        super().close()


class SecureNats(Secure, Nats):
    scheme = "tls"
    names = ("cafile", "certfile", "keyfile")

    def prepare(self) -> None:
        super().prepare()
        papers = self.papers
        with (self.directory / "nats.conf").open("a") as settings:
            settings.write(
                f'tls {{ cert_file: "{papers.server}", key_file: "{papers.server}",'
                f' ca_file: "{papers.authority}", verify: true }}\n'
            )

    def ask(self, question: bytes = b"", size: int = 4096) -> bytes:
        return Server.ask(self, question, size)  # it introduces itself before TLS


class SecureRabbitMQ(Secure, RabbitMQ):
    scheme = "amqps"
    names = ("cafile", "certfile", "keyfile")

    def prepare(self) -> None:
        super().prepare()
        papers = self.papers
        (self.directory / "rabbitmq.conf").write_text(
            "listeners.tcp = none\n"
            f"listeners.ssl.default = {HOST}:{self.port}\n"
            f"ssl_options.cacertfile = {papers.authority}\n"
            f"ssl_options.certfile = {papers.server}\n"
            f"ssl_options.keyfile = {papers.server}\n"
            "ssl_options.verify = verify_peer\n"
            "ssl_options.fail_if_no_peer_cert = true\n"
            "log.console = true\nlog.file = false\nloopback_users = none\n"
        )


class SecurePostgreSQL(Secure, PostgreSQL):
    scheme = "postgresql"
    names = ("sslrootcert", "sslcert", "sslkey")
    always = (("sslmode", "verify-full"),)

    def prepare(self) -> None:
        super().prepare()
        (self.directory / "data/pg_hba.conf").write_text(
            f"hostssl all all {HOST}/32 scram-sha-256 clientcert=verify-ca\n"
        )

    def command(self) -> list[str]:
        papers = self.papers
        return [
            *super().command(),
            *("-c", "ssl=on", "-c", f"ssl_ca_file={papers.authority}"),
            *("-c", f"ssl_cert_file={papers.server}"),
            *("-c", f"ssl_key_file={papers.server}"),
        ]

    def is_ready(self) -> bool:
        with socket.create_connection((HOST, self.port), 2) as connection:
            connection.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")  # may we speak TLS?
            if connection.recv(1) != b"S":
                return False
            with self.papers.context().wrap_socket(connection, server_hostname=HOST) as secure:
                secure.sendall(HELLO)
                return secure.recv(1) == ASKS_FOR_PASSWORD


class SecureMongoDB(Secure, MongoDB):
    scheme = "mongodb"
    names = ("tlsCAFile", "tlsCertificateKeyFile")
    always = (("tls", "true"),)

    def command(self) -> list[str]:
        return [
            *(*super().command(), "--tlsMode", "requireTLS"),
            *("--tlsCertificateKeyFile", str(self.papers.server)),
            *("--tlsCAFile", str(self.papers.authority)),
        ]

    def client(self) -> MongoClient[dict[str, object]]:
        return super().client(
            tls=True,
            tlsCAFile=str(self.papers.authority),
            tlsCertificateKeyFile=str(self.papers.client),
        )


class SecureKafka(Secure, Kafka):
    scheme = "kafka"
    protocol = "SSL"
    names = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
    always = (("security.protocol", "SSL"),)

    def prepare(self) -> None:
        self.papers.write()  # read when it is told what it will store
        Kafka.prepare(self)

    def settings(self) -> str:
        papers = self.papers
        return super().settings() + (
            "listener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT\n"
            "inter.broker.listener.name=SSL\n"
            "ssl.client.auth=required\n"
            f"ssl.keystore.type=PEM\nssl.keystore.location={papers.server}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={papers.authority}\n"
        )

    def client_settings(self) -> dict[str, str]:
        papers = self.papers
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(papers.authority),
            "ssl.certificate.location": str(papers.client),
            "ssl.key.location": str(papers.client),
        }
