"""What the environment says."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from deadletter import PROFILES, ConfigError, Profile, rules_from_toml

QUEUE: Final = "relay-transactions"
DEAD_QUEUE: Final = f"{QUEUE}-dlq"
_LOCAL: Final = "http://localhost:4566/000000000000"
_AMAZON: Final = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com")


class Settings(Struct, frozen=True, kw_only=True):
    """How this relayer runs."""

    sqs: str  # the engine, with the beginning that our queues' names have in common
    region: str
    database: str = "sqlite:///relayer.db"
    office: str = "sqlite:///relayer-office.db"
    relayer: str = "http://127.0.0.1:8600"
    relayer_timeout: float = 10.0  # seconds for an answer
    profile: Profile = PROFILES["relayer"]
    lease: float = 60.0  # seconds a transaction stays with a consumer that is silent
    dead_lease: float = 300.0  # ...and a dead message with the DLQ consumer
    retry_delay: float = 60.0  # seconds before the next attempt
    replay_delay: float = 60.0  # ...and before what died is sent back
    replay_limit: int = 3  # how often, before it is for people only
    host: str = "127.0.0.1"
    port: int = 8500
    health_port: int = 8501
    webhook_token: str = ""
    publish_every: float = 60.0  # seconds between numbers for CloudWatch; 0: none


def read(environ: Mapping[str, str]) -> Settings:
    """The settings; what cannot be is refused with a sentence."""
    profile = _with_rules(PROFILES["relayer"].with_environment(environ), environ.get("DLQ_RULES"))
    main, dead = environ.get("SQS_QUEUE_URL"), environ.get("SQS_DLQ_URL")
    try:
        profile.check_consumers(worker=bool(main), dlq_consumer=bool(dead))
    except ConfigError as error:
        name = "SQS_DLQ_URL" if main else "SQS_QUEUE_URL"
        raise ConfigError(f"{error} Its queue is to be named in {name}.") from error
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION", "eu-west-1")
    sqs, region = _engine(main or f"{_LOCAL}/{QUEUE}", dead or f"{_LOCAL}/{DEAD_QUEUE}", region)
    number = partial(_whole, environ)
    return Settings(
        sqs=sqs,
        region=region,
        profile=profile,
        database=environ.get("DATABASE_URL", "sqlite:///relayer.db"),
        office=environ.get("DLQ_OFFICE", "sqlite:///relayer-office.db"),
        relayer=environ.get("RELAYER_URL", "http://127.0.0.1:8600"),
        relayer_timeout=number("RELAYER_TIMEOUT_MS", 10_000) / 1000,
        lease=number("LEASE_MS", 60_000) / 1000,
        dead_lease=number("DLQ_LEASE_MS", 300_000) / 1000,
        retry_delay=number("RETRY_DELAY_MS", 60_000) / 1000,
        replay_delay=number("REPLAY_DELAY_MS", 60_000) / 1000,
        replay_limit=number("REPLAY_LIMIT", 3),
        host=environ.get("HOST", "127.0.0.1"),
        port=number("PORT", 8500),
        health_port=number("HEALTH_PORT", 8501),
        webhook_token=environ.get("WEBHOOK_TOKEN", ""),
        publish_every=number("METRICS_INTERVAL_MS", 60_000) / 1000,
    )


def _with_rules(profile: Profile, file: str | None) -> Profile:
    """The profile, with the rules of a file asked before its own."""
    if not file:
        return profile
    try:
        rules = rules_from_toml(Path(file).read_text())
    except OSError as error:
        raise ConfigError(f"DLQ_RULES: {file}: {error.strerror}.") from error
    classifier = profile.policy.classifier.extended(*rules)
    return replace(profile, policy=replace(profile.policy, classifier=classifier))


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name} is {text!r}: give a whole number, 0 or more.")
    return int(text)


def _engine(main: str, dead: str, region: str) -> tuple[str, str]:
    """The engine's URL, and the region, that two queue URLs mean."""
    place, name = _split("SQS_QUEUE_URL", main, QUEUE)
    other, dead_name = _split("SQS_DLQ_URL", dead, DEAD_QUEUE)
    prefix = name.removesuffix(QUEUE)
    if (place, f"{prefix}{DEAD_QUEUE}") != (other, dead_name):
        raise ConfigError(
            f"SQS_DLQ_URL must be the queue {prefix}{DEAD_QUEUE} beside SQS_QUEUE_URL."
        )
    if amazon := _AMAZON.fullmatch(place.partition("://")[2]):
        region = amazon[1]
        return f"sqs://{region}?prefix={prefix}", region
    return f"sqs+{place}?region={region}&prefix={prefix}", region


def _split(variable: str, url: str, ending: str) -> tuple[str, str]:
    parts = urlsplit(url)
    name = parts.path.rpartition("/")[2]
    if parts.scheme not in {"http", "https"} or not name.endswith(ending):
        raise ConfigError(
            f"{variable} is the URL of a queue whose name ends in {ending}, such as "
            f"{_LOCAL}/{ending}."
        )
    return f"{parts.scheme}://{parts.netloc}", name
