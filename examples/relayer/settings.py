"""Settings of the service, read from the environment."""

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
_ACCOUNT: Final = re.compile(r"\d{12}")
_SWITCH: Final = {"on": True, "off": False}


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of one relayer."""

    server: str  # the URL of SQS, with the prefix of our queues' names
    account: str  # that owns the queues
    region: str
    database: str = "sqlite:///relayer.db"
    office: str = "sqlite:///relayer-office.db"
    relayer: str = "http://127.0.0.1:8600"
    relayer_timeout: float = 10.0  # seconds for an answer
    profile: Profile = PROFILES["relayer"]
    lease: float = 60.0  # seconds a transaction stays with a consumer that is silent
    dead_lease: float = 300.0  # ...and a dead message with the DLQ consumer
    retry_delay: float = 60.0  # seconds before the next attempt
    reprocessing: bool = False  # send back what died, if its client asked for that
    replay_delay: float = 60.0  # seconds before it is sent back
    replay_limit: int = 3  # how many times; then its letter is quarantined
    host: str = "127.0.0.1"
    port: int = 8500
    health_port: int = 8501
    webhook_token: str = ""
    publish_every: float = 60.0  # seconds between numbers for CloudWatch; 0: none

    @property
    def sqs(self) -> str:
        """The engine: SQS retries and moves messages by itself, and no queue is made."""
        return f"{self.sqs_for_creation}&account={self.account}&create=no"

    @property
    def sqs_for_creation(self) -> str:
        """The engine that makes queues, in the account of our credentials."""
        return f"{self.server}&retry={self.profile.sqs_retry}"


def read(environ: Mapping[str, str]) -> Settings:
    """Return the settings; raise ConfigError for an invalid one."""
    profile = _with_rules(PROFILES["relayer"].with_environment(environ), environ.get("DLQ_RULES"))
    main, dead = environ.get("SQS_QUEUE_URL"), environ.get("SQS_DLQ_URL")
    try:
        profile.check_consumers(worker=bool(main), dlq_consumer=bool(dead))
    except ConfigError as error:
        name = "SQS_DLQ_URL" if main else "SQS_QUEUE_URL"
        raise ConfigError(f"{error} Its queue is to be named in {name}.") from error
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION", "eu-west-1")
    server, account, region = _engine(
        main or f"{_LOCAL}/{QUEUE}", dead or f"{_LOCAL}/{DEAD_QUEUE}", region
    )
    number = partial(_whole, environ)
    return Settings(
        server=server,
        account=account,
        region=region,
        profile=profile,
        database=environ.get("DATABASE_URL", "sqlite:///relayer.db"),
        office=environ.get("DLQ_OFFICE", "sqlite:///relayer-office.db"),
        relayer=environ.get("RELAYER_URL", "http://127.0.0.1:8600"),
        relayer_timeout=number("RELAYER_TIMEOUT_MS", 10_000) / 1000,
        lease=number("LEASE_MS", 60_000) / 1000,
        dead_lease=number("DLQ_LEASE_MS", 300_000) / 1000,
        retry_delay=number("RETRY_DELAY_MS", 60_000) / 1000,
        reprocessing=_switch(environ, "REPROCESSING"),
        replay_delay=number("REPLAY_DELAY_MS", 60_000) / 1000,
        replay_limit=number("REPLAY_LIMIT", 3),
        host=environ.get("HOST", "127.0.0.1"),
        port=number("PORT", 8500),
        health_port=number("HEALTH_PORT", 8501),
        webhook_token=environ.get("WEBHOOK_TOKEN", ""),
        publish_every=number("METRICS_INTERVAL_MS", 60_000) / 1000,
    )


def _with_rules(profile: Profile, file: str | None) -> Profile:
    """Return the profile with the rules of a file before its own."""
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


def _switch(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "off")
    if text not in _SWITCH:
        raise ConfigError(f"{name} must be on or off, got {text!r}.")
    return _SWITCH[text]


def _engine(main: str, dead: str, region: str) -> tuple[str, str, str]:
    """Return the engine's URL, the account and the region of two queue URLs."""
    place, account, name = _split("SQS_QUEUE_URL", main, QUEUE)
    prefix = name.removesuffix(QUEUE)
    if _split("SQS_DLQ_URL", dead, DEAD_QUEUE) != (place, account, f"{prefix}{DEAD_QUEUE}"):
        raise ConfigError(
            f"SQS_DLQ_URL must be the queue {prefix}{DEAD_QUEUE} beside SQS_QUEUE_URL,"
            " in the same account."
        )
    if amazon := _AMAZON.fullmatch(place.partition("://")[2]):
        region = amazon[1]
        return f"sqs://{region}?prefix={prefix}", account, region
    return f"sqs+{place}?region={region}&prefix={prefix}", account, region


def _split(variable: str, url: str, ending: str) -> tuple[str, str, str]:
    """Return the server, account and name in the URL of a queue."""
    parts = urlsplit(url)
    account, _, name = parts.path.strip("/").rpartition("/")
    if (
        parts.scheme not in {"http", "https"}
        or not name.endswith(ending)
        or not _ACCOUNT.fullmatch(account)
    ):
        raise ConfigError(
            f"{variable} must be the URL of a queue whose name ends in {ending}, with an"
            f" account of 12 digits before it, such as {_LOCAL}/{ending}."
        )
    return f"{parts.scheme}://{parts.netloc}", account, name
