"""
NATS URLs: servers, login, and the names of our streams.

    nats://user:password@host:4222,other:4222     nats://token@host
    tls://host?cafile=ca.pem&certfile=me.pem&keyfile=me.key
    tls://host?creds=me.creds
"""

from typing import Annotated, Final

from msgspec import Meta, Struct, ValidationError, convert

from deadletter.core.errors import ConfigError
from deadletter.kit import ServerUrl, UrlForm

_TLS: Final = ("cafile", "certfile", "keyfile")
# Valid wherever we put it.
_Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        extra_json_schema={"description": "1 to 64 letters, digits, - and _"},
    ),
]


class Options(Struct, frozen=True):
    """Parameters of a URL."""

    prefix: _Name = "dlq"
    replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    stream: _Name | None = None
    consumer: str | None = None
    creds: str | None = None
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


class Login(Struct, frozen=True, kw_only=True):
    """Addresses of servers, and our credentials there."""

    servers: list[str]  # without user and password
    where: str  # the servers, for messages
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None  # a file with a user JWT and its key
    tls: bool = False
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


class Address(Struct, frozen=True):
    """Login to a server, and the names of our streams there."""

    login: Login
    prefix: str = "dlq"
    replicas: int = 1
    stream: str | None = None
    consumer: str | None = None


URL: Final = UrlForm(
    "NATS",
    {"nats": 4222, "tls": 4222},
    Options,
    example="nats://user:password@host:4222",
    tls_schemes=("tls",),
    tls_options=_TLS,
    many_hosts=True,
)


def read_url(url: str, *, is_drain: bool = False) -> Address:
    """
    Read a NATS URL.

    For a drain, `?consumer=` names the consumer of any stream whose acks confirm
    replayed messages; for the engine it belongs to `?stream=`.
    """
    read = URL.read(url)
    options = read.options
    if read.path.strip("/"):
        raise ConfigError(f"NATS URLs have no path, got {read.path!a}: remove it")
    if options.consumer is not None and not is_drain:
        if options.stream is None:
            raise ConfigError("?consumer= belongs to a stream: name it too, with ?stream=")
        _check_consumer(options.consumer)
    return Address(
        login=_login_of(read),
        prefix=options.prefix,
        replicas=options.replicas,
        stream=options.stream,
        consumer=options.consumer,
    )


def _check_consumer(name: str) -> None:
    try:
        convert(name, _Name)
    except ValidationError as error:
        raise ConfigError(
            f"consumer in the NATS URL must be 1 to 64 letters, digits, - and _, got {name!a}"
        ) from error


def _login_of(read: ServerUrl[Options]) -> Login:
    has_password = read.password is not None
    return Login(
        servers=[f"{read.scheme}://{host}" for host in read.hosts],
        where=read.where,
        user=(read.user or "") if has_password else None,
        password=read.password,
        token=None if has_password else read.user,
        creds=read.options.creds,
        tls=read.is_tls,
        cafile=read.options.cafile,
        certfile=read.options.certfile,
        keyfile=read.options.keyfile,
    )
