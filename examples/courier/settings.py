"""Settings, read from environment variables and checked at the start."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Meta, Struct

from deadletter import PROFILES, ConfigError, Profile

MAIN: Final = "courier-events-main"
DLQ: Final = "courier-events-dlq"

Text = Annotated[str, Meta(min_length=1)]
Secret = Annotated[str, Meta(min_length=16)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1)]
Millis = Annotated[float, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]
Days = Annotated[float, Meta(gt=0, le=36500)]


class Settings(Struct, frozen=True, kw_only=True):
    """The variables by their names in lower case."""

    queue_url: Text
    mongodb_url: Text
    courier_secret: Secret
    signature_window_seconds: Seconds = 300.0
    max_body_bytes: Count = 262_144
    api_host: Text = "127.0.0.1"
    api_port: Port = 8080
    downstream_url: Text = "http://127.0.0.1:8090/events"
    downstream_timeout_ms: Millis = 5_000.0
    worker_concurrency: Count = 10
    worker_drain_timeout_ms: Millis = 15_000.0
    worker_lease_seconds: Seconds = 60.0
    processed_events_ttl_days: Days = 30.0
    retention_every_seconds: Seconds = 3_600.0
    dlq_keep_unreviewed: bool = False

    @property
    def worker_queue_url(self) -> str:
        """Return the URL of the queue for the worker, which counts `attempt` in the payload."""
        return with_parameters(self.queue_url, "bullmq", attempt_field="attempt")

    @property
    def office_url(self) -> str:
        """Return the URL of the office, whose documents have the gateway's fields as well."""
        return with_parameters(self.mongodb_url, "mongodb", documents="courier", review="in-order")

    def __repr__(self) -> str:
        """Return the settings without their secrets."""
        return f"Settings({self.api_host}:{self.api_port}, {self.downstream_url})"


def with_parameters(url: str, scheme: str, **parameters: str) -> str:
    """Return a URL with parameters that it does not have yet, if it is of this scheme."""
    parts = urlsplit(url)
    if not parts.scheme.startswith(scheme):
        return url
    known = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    more = urlencode({name: value for name, value in parameters.items() if name not in known})
    query = "&".join(part for part in (parts.query, more) if part)
    return urlunsplit(parts._replace(query=query))


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the environment. Raises ConfigError that names the variable."""
    given = {
        name: text
        for name in Settings.__struct_fields__
        if (text := environ.get(name.upper(), "").strip())
    }
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        for name in Settings.__struct_fields__:  # `$.api_port` becomes API_PORT
            text = text.replace(f"$.{name}", name.upper()).replace(f"`{name}`", name.upper())
        raise ConfigError(f"invalid environment: {text}") from None


def profile(environ: Mapping[str, str] = os.environ) -> Profile:
    """Return the courier profile with its RETRY_* variables and DLQ_TTL_DAYS."""
    return PROFILES["courier"].with_environment(environ)


def of_this_process() -> tuple[Settings, Profile]:
    """Return what a process runs with. Ends the process with code 2 if it is invalid."""
    try:
        return load(), profile()
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
