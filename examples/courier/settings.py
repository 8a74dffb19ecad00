"""What can be set, by environment variables; what cannot be is refused at the start."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Final

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

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Settings({self.api_host}:{self.api_port}, {self.downstream_url})"


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of the environment; a ConfigError names the variable to mend."""
    told = {
        name: text
        for name in Settings.__struct_fields__
        if (text := environ.get(name.upper(), "").strip())
    }
    try:
        return msgspec.convert(told, Settings, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        for name in Settings.__struct_fields__:  # it says `$.api_port`, we say API_PORT
            text = text.replace(f"$.{name}", name.upper()).replace(f"`{name}`", name.upper())
        raise ConfigError(f"the environment cannot be: {text}") from None


def profile(environ: Mapping[str, str] = os.environ) -> Profile:
    """The courier profile with its RETRY_* variables and DLQ_TTL_DAYS."""
    return PROFILES["courier"].with_environment(environ)


def of_this_process() -> tuple[Settings, Profile]:
    """What a process runs with; where that cannot be it ends, and says why."""
    try:
        return load(), profile()
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
