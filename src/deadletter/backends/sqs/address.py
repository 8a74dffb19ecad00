"""SQS URLs: what they say, and what they may say."""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.urls import unreadable

_PARAMETERS: Final = frozenset({"region", "prefix", "claim_check"})
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,40}")


class Address(Struct, frozen=True, kw_only=True):
    """Where a service is, and which of its queues are ours."""

    region: str | None = None  # None: the environment says
    endpoint: str | None = None  # None: Amazon's own
    keys: tuple[str, str] | None = None  # None: the usual chain
    prefix: str = ""
    claim_check: str | None = None

    @property
    def where(self) -> str:
        """For people; without keys."""
        return self.endpoint or f"SQS in {self.region or 'the configured region'}"

    @property
    def is_amazon(self) -> bool:
        """Whether it is the true service, as far as the address tells."""
        host = urlsplit(self.endpoint or "").hostname
        return host is None or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def read_url(url: str) -> Address:
    """What a URL says."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise unreadable("SQS") from error
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given.keys() - _PARAMETERS:
        raise ConfigError(
            f"unknown parameter {name!a} in the SQS URL; known are:"
            f" {', '.join(sorted(_PARAMETERS))}"
        )
    if parts.path.strip("/"):
        raise ConfigError(
            f"{parts.path!a} in the SQS URL says nothing: mailboxes are named where"
            " they are used; a common beginning of their names is ?prefix="
        )
    prefix = given.get("prefix", "")
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"the prefix {prefix!a} cannot begin a queue name: up to 40 letters,"
            " digits, - and _"
        )
    region, endpoint, keys = given.get("region"), None, None
    match parts.scheme:
        case "sqs":
            region = _region(host, port, parts.username, region)
        case "sqs+http" | "sqs+https" if host:
            endpoint = _endpoint(parts.scheme, host, port)
            if parts.username and parts.password:
                keys = unquote(parts.username), unquote(parts.password)
        case _:
            raise ConfigError(
                "an SQS URL is sqs://, sqs://eu-west-1 or sqs+http://localhost:4566"
            )
    return Address(
        region=region,
        endpoint=endpoint,
        keys=keys,
        prefix=prefix,
        claim_check=given.get("claim_check"),
    )


def _region(
    host: str | None, port: int | None, user: str | None, given: str | None
) -> str | None:
    if user is not None:
        raise ConfigError(
            "keys do not belong into an sqs:// URL: use the usual AWS places, such as"
            " AWS_ACCESS_KEY_ID, a profile or a role"
        )
    if not host:
        return given
    if port is not None or not _REGION.fullmatch(host):
        there = f"{host}:{port}" if port else host
        raise ConfigError(
            f"{there!a} is no AWS region: write sqs://eu-west-1, or"
            f" sqs+http://{there} for another endpoint"
        )
    if given not in {None, host}:
        raise ConfigError(f"the SQS URL names two regions, {host} and {given}")
    return host


def _endpoint(scheme: str, host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{scheme.removeprefix('sqs+')}://{name}" + (f":{port}" if port else "")
