"""RabbitMQ URLs: amqp://user:password@host:5672/vhost, and amqps:// with TLS."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from deadletter.kit import UrlForm

_TLS: Final = ("cafile", "certfile", "keyfile")
_HEARTBEAT: Final = 20  # seconds; after twice as long a silent connection ends
_Seconds = Annotated[
    int, Meta(ge=0, le=3600, extra_json_schema={"description": "a number of seconds up to 3600"})
]
_Port = Annotated[
    int, Meta(ge=1, le=65_535, extra_json_schema={"description": "a port such as 15672"})
]


class Options(Struct, frozen=True):
    """Parameters of a URL."""

    heartbeat: _Seconds = _HEARTBEAT
    management: _Port | None = None  # the port of the HTTP API
    back: Literal["exchange", "queue"] = "exchange"  # how drained messages go back
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


class Address(Struct, frozen=True, kw_only=True):
    """Location of a broker, and our login there."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False
    heartbeat: int = _HEARTBEAT
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    management: int | None = None  # the port of the HTTP API
    back: str = "exchange"

    @property
    def where(self) -> str:
        """Host and port, for messages."""
        return f"{self.host}:{self.port}"


URL: Final = UrlForm(
    "RabbitMQ",
    {"amqp": 5672, "amqps": 5671},
    Options,
    example="amqp://user:password@host:5672/vhost",
    tls_schemes=("amqps",),
    tls_options=_TLS,
)


def read_url(url: str) -> Address:
    """Read a RabbitMQ URL."""
    read = URL.read(url)
    options = read.options
    return Address(
        host=read.host.name,
        port=read.host.port or 0,
        user=read.user or "guest",
        password="guest" if read.password is None else read.password,
        vhost=read.path.removeprefix("/") or "/",
        tls=read.is_tls,
        heartbeat=options.heartbeat,
        cafile=options.cafile,
        certfile=options.certfile,
        keyfile=options.keyfile,
        management=options.management,
        back=options.back,
    )
