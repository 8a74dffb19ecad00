"""
What can be set without touching code: `deadletter.toml`, then `DLQ_*` variables.

    [work]                  DLQ_WORK_PROCESSES=4
    processes = 2

The environment wins over the file, the file over the defaults. Whatever cannot be
is refused with a sentence that names the setting and says what it should be.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, structs

from deadletter.core.alerts import Alerts
from deadletter.core.errors import ConfigError, with_choices
from deadletter.core.grouping import GROUPS_PER_DAY
from deadletter.core.redact import redact

FILE: Final = "deadletter.toml"
PREFIX: Final = "DLQ_"
OFFICE: Final = "sqlite:///deadletter.db"
"""Where letters are kept when neither the engine can nor anybody says."""
ACCESS: Final = "sqlite:///deadletter-access.db"
"""Where tokens are kept when neither the engine nor its office can."""

OfficeDurability: TypeAlias = Literal["power-safe", "kill-safe", "none"]
QueueCodes: TypeAlias = Literal["deadletter", "querator"]

Text = Annotated[str, Meta(min_length=1, title="a text")]
Count = Annotated[int, Meta(ge=1, title="a whole number, 1 or more")]
Port = Annotated[int, Meta(ge=1, le=65535, title="a port number, 1 to 65535")]
AnyPort = Annotated[int, Meta(ge=0, le=65535, title="a port number, 0 to 65535")]
Seconds = Annotated[float, Meta(ge=0, le=1e7, title="seconds, 0 to 1e7")]
Share = Annotated[float, Meta(gt=0, le=1e7, title="seconds, more than 0")]
Hours = Annotated[float, Meta(gt=0, le=876000, title="hours, up to 876000")]
Days = Annotated[float, Meta(gt=0, le=36500, title="days, up to 36500")]
Indexed = Annotated[int, Meta(ge=0, le=1_000_000, title="bytes, 0 to 1000000")]
Names = Annotated[tuple[Text, ...], Meta(title="a list of texts")]

# Not settings: where to find them, what the command itself reads, names of the
# profiles (deadletter.profiles), and what Kubernetes makes for a service called dlq.
_OTHERS: Final = (
    "DLQ_CONFIG",
    "DLQ_DEBUG",
    "DLQ_SERVER",
    "DLQ_TOKEN",
    "DLQ_TTL_DAYS",
    "DLQ_POLL_INTERVAL_MS",
    "DLQ_SERVICE_HOST",
    "DLQ_SERVICE_PORT",
)
_PLAIN: Final = {bool: "true or false", str: "a text", int: "a whole number", float: "a number"}
_ALMOST: Final = 0.85  # how alike a name must be to be taken for a slip


class Work(Struct, frozen=True, kw_only=True):
    """How `dlq work` runs handlers."""

    processes: Count = 1
    health_host: Text = "127.0.0.1"
    health_port: Port | None = None  # None: no health listener
    watchdog: Seconds = 720.0  # without a sign of life; 0: no watchdog


class Serve(Struct, frozen=True, kw_only=True):
    """How `dlq serve` answers."""

    host: Text = "127.0.0.1"  # where it listens; others than this machine need access
    port: AnyPort = 8418  # 0: one that is free
    access: Literal["on", "off"] = "on"  # whether callers must show a token
    metrics: Literal["token", "open"] = "token"  # whether /metrics asks for one, too
    queue_codes: QueueCodes = "deadletter"  # of errors under /v1
    replay_to: Names = ()  # mailboxes letters may go to besides where they came from
    body_limit: Count = 32 * 1024 * 1024  # bytes of one request
    session_hours: Hours = 12.0  # how long somebody stays signed in
    proxies: Names = ()  # addresses whose X-Forwarded-For and -Proto are believed
    search_seconds: Seconds = 2.0  # of a search, before it answers with what it found
    search_share: Share = 20.0  # seconds of costly searches a minute, for each caller
    notice: Seconds = 0.0  # readiness fails this long before anything stops
    grace: Seconds = 30.0  # for requests under way when told to stop
    retention_every: Hours | None = None  # between retention runs; never, unless set


class Access(Struct, frozen=True, kw_only=True):
    """Where tokens are kept, if the engine and its office cannot."""

    store: Text = ACCESS  # a SQLite file, used with offices such as MongoDB only


class Anchors(Struct, frozen=True, kw_only=True):
    """Where `dlq serve` and `dlq work` note the end of the audit, if anywhere."""

    file: Text | None = None  # lines are appended to it, which `dlq verify` goes by
    webhook: Text | None = None  # a URL that it is posted to
    secret: Text | None = None  # that signs the webhook; whsec_ and base64, or a text
    every: Seconds = 3_600.0  # seconds between two looks


class RetentionDays(Struct, frozen=True, kw_only=True):
    """How long what is finished is kept. The unreviewed never expires."""

    closed: Days = 90
    replayed: Days = 90
    discarded: Days = 90
    ledger: Days = 30


class SourceServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of others that letters are drained from, and go back to."""

    url: Text  # as `dlq drain` takes it


Sources = Annotated[
    dict[Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")], SourceServer],
    Meta(title="sections [sources.NAME] with a url"),
]


class Settings(Struct, frozen=True, kw_only=True):
    """What can be set without touching code."""

    url: Text = OFFICE  # the engine: mailboxes, office, ledger
    office: Text | None = None  # where letters are kept, if not in the engine itself
    office_durability: OfficeDurability = "power-safe"  # of an office, at least
    app: Text | None = None  # module:name of the application with the handlers
    rules: Text | None = None  # a TOML file of rules asked before those of any handler
    signing_keys: Names = ()  # that headers are signed with; the office's own without
    index_bodies: Indexed | None = None  # of bodies whose words are indexed; 0: none
    depth_threshold: Count = 100  # open letters of one mailbox that health warns of
    groups_per_day: Count = GROUPS_PER_DAY  # new ones of a source, error and frame
    presume_after: Seconds = 600.0  # of copies sent to others; 0: never presumed
    sources: Sources = {}  # servers of others, by name
    work: Work = Work()
    serve: Serve = Serve()
    access: Access = Access()
    alerts: Alerts = Alerts()
    anchors: Anchors = Anchors()
    retention_days: RetentionDays = RetentionDays()

    @property
    def source_urls(self) -> dict[str, str]:
        """Return the URLs of servers of others, by name."""
        return {name: source.url for name, source in self.sources.items()}

    def __repr__(self) -> str:
        """As usual, but without passwords in URLs, and without keys."""
        hidden = structs.replace(self, signing_keys=("...",) * len(self.signing_keys))
        return redact(super(Settings, hidden).__repr__())


def load_settings(path: str | Path | None = None, *, environ: Mapping[str, str]) -> Settings:
    """
    Read the settings: the file at `path`, and what `environ` says differently.

    Without a path `DLQ_CONFIG` names the file, else it is `deadletter.toml` in
    the current directory, which may be missing.
    """
    named = path or environ.get("DLQ_CONFIG")
    file = Path(named or FILE)
    found = _read(file, required=bool(named))
    told = _flat(found, str(file))
    values = {key: (value, f"{key} in {file}") for key, value in told.items()}
    if isinstance(rules := told.get("rules"), str):  # beside the file that names them
        values["rules"] = (str(file.parent / rules), f"rules in {file}")
    return _built(values | _from_environment(environ))


def _read(file: Path, *, required: bool) -> dict[str, Any]:
    try:
        return msgspec.toml.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        if not required:
            return {}
        raise ConfigError(f"There is no settings file {file}.") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}.") from error


def _flat(found: Mapping[str, Any], where: str, under: str = "") -> dict[str, Any]:
    """Return the file as dotted keys and values; an unknown key is refused."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        key = f"{under}{name}"
        if isinstance(value, dict) and key in _SECTIONS:
            flat |= _flat(value, where, f"{key}.")
        elif key in _KEYS:
            flat[key] = value
        elif key in _SECTIONS:
            raise ConfigError(f"{key} in {where} is a section: write [{key}] above it.")
        else:
            raise ConfigError(f"{where} sets {key}, which does not exist.{_hint(key)}")
    return flat


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    values: dict[str, tuple[Any, str]] = {}
    for name, value in environ.items():
        key = _VARIABLES.get(name)
        if key is not None and value:  # set to nothing is not set
            values[key] = (value, name)
        elif key is None and name.startswith(PREFIX) and not name.startswith(_OTHERS):
            # Others may own variables that begin like ours, so only a likely slip
            # is refused.
            near = get_close_matches(name, _VARIABLES, 1, _ALMOST)
            if near:
                raise ConfigError(f"{name} is not a setting. Did you mean {near[0]}?")
    return values


def _built(values: Mapping[str, tuple[Any, str]]) -> Settings:
    nested: dict[str, Any] = {}
    for key, (value, where) in values.items():
        section, _, name = key.rpartition(".")
        place = nested.setdefault(section, {}) if section else nested
        place[name] = _converted(key, value, where)
    return msgspec.convert(nested, Settings)


def _converted(key: str, value: Any, where: str) -> Any:
    kind = _KEYS[key]
    # Only the environment speaks in strings: "8080" in the file is a mistake.
    in_file = not where.startswith(PREFIX)
    try:
        given = value if in_file else _listed(value, kind)
        return msgspec.convert(given, kind, strict=in_file)
    except msgspec.DecodeError as error:
        should = must_be(kind)
        if entries_of(kind):  # which entry it is, and what of it; never its value
            wrong = with_choices(str(error), kind)
            raise ConfigError(f"{where} must be {should}: {wrong}.") from None
        shown = redact(repr(value))
        raise ConfigError(f"{where} must be {should}, not {shown}.") from None


def _listed(value: str, kind: Any) -> Any:
    """Return a variable as it is; a list is JSON, or texts between commas; sections JSON."""
    if get_origin(_bare(kind)) is dict:
        return msgspec.json.decode(value)
    if get_origin(_bare(kind)) is not tuple:
        return value
    if value.lstrip().startswith("["):
        return msgspec.json.decode(value)
    return [word for part in value.split(",") if (word := part.strip())]


def must_be(kind: Any) -> str:
    """Return what a setting of this type should be, in words."""
    for option in (kind, *get_args(kind)):  # X | None: the one that is not None tells
        for meta in getattr(option, "__metadata__", ()):
            if meta.title:
                return str(meta.title)
    bare = _bare(kind)
    if get_origin(bare) is Literal:
        return " or ".join(map(str, get_args(bare)))
    if get_origin(bare) is tuple:
        return "a list of sections" if entries_of(kind) else "a list"
    if isinstance(bare, type) and issubclass(bare, StrEnum):
        return " or ".join(bare)
    return _PLAIN[bare]


def _bare(kind: Any) -> Any:
    """Return a type without None and what is said about it."""
    while True:
        options = [one for one in get_args(kind) if one is not NoneType]
        if get_origin(kind) is Annotated or (
            get_origin(kind) in (UnionType, Union) and len(options) == 1
        ):
            kind = options[0]
        else:
            return kind


def entries_of(kind: Any) -> type[Struct] | None:
    """Return the Struct that a setting is a list of, or named sections of, if it is."""
    bare = _bare(kind)
    kinds = get_args(bare) or (None,)
    entry = {tuple: kinds[0], dict: kinds[-1]}.get(get_origin(bare) or bare)
    is_struct = isinstance(entry, type) and issubclass(entry, Struct)
    return entry if is_struct else None


def _hint(key: str) -> str:
    near = get_close_matches(key, [*_KEYS, *_SECTIONS], 1, 0.5)
    return f" Did you mean {near[0]}?" if near else f" Known: {', '.join(_KEYS)}."


def _leaves(kind: type[Struct], under: str = "") -> dict[str, Any]:
    """All settings by their dotted key, with the type each must have."""
    keys: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        key = f"{under}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            keys |= _leaves(field.type, f"{key}.")
        else:
            keys[key] = field.type
    return keys


_KEYS: Final = _leaves(Settings)
_SECTIONS: Final = frozenset(key.rpartition(".")[0] for key in _KEYS) - {""}
_VARIABLES: Final = {PREFIX + key.replace(".", "_").upper(): key for key in _KEYS}
