"""
Settings: `deadletter.toml`, then `DLQ_*` variables.

    [work]                  DLQ_WORK_PROCESSES=4
    processes = 2

The environment overrides the file, and the file overrides the defaults. An invalid value
raises ConfigError, which names the setting and says what is expected.
"""

from collections.abc import Iterator, Mapping
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
from deadletter.core.redact import is_secret_name, redact

FILE: Final = "deadletter.toml"
PREFIX: Final = "DLQ_"
OFFICE: Final = "sqlite:///deadletter.db"
"""The default office, if the engine cannot keep letters and no office is named."""
ACCESS: Final = "sqlite:///deadletter-access.db"
"""The default store of tokens, if neither the engine nor its office can keep them."""

OfficeDurability: TypeAlias = Literal["power-safe", "kill-safe", "none"]
QueueCodes: TypeAlias = Literal["deadletter", "querator"]

Text = Annotated[str, Meta(min_length=1, title="a text")]
Count = Annotated[int, Meta(ge=1, title="a whole number, 1 or more")]
AnyCount = Annotated[int, Meta(ge=0, title="a whole number, 0 or more")]
Port = Annotated[int, Meta(ge=1, le=65535, title="a port number, 1 to 65535")]
AnyPort = Annotated[int, Meta(ge=0, le=65535, title="a port number, 0 to 65535")]
Seconds = Annotated[float, Meta(ge=0, le=1e7, title="seconds, 0 to 1e7")]
Share = Annotated[float, Meta(gt=0, le=1e7, title="seconds, more than 0")]
Hours = Annotated[float, Meta(gt=0, le=876000, title="hours, up to 876000")]
Days = Annotated[float, Meta(gt=0, le=36500, title="days, up to 36500")]
Indexed = Annotated[int, Meta(ge=0, le=1_000_000, title="bytes, 0 to 1000000")]
IntakeName = Annotated[
    str,
    Meta(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,63}$", title="a name of letters, digits, ., _ and -"),
]
Names = Annotated[tuple[Text, ...], Meta(title="a list of texts")]

# Paths of webhooks are secrets, and so is what may stand in addresses of people.
_SECRET: Final = frozenset({"signing_keys", "alerts.targets", "anchors.webhook", "anchors.secret"})

# Variables that are not settings: the path of the file, variables of the command, variables
# of deadletter.profiles, and those that Kubernetes sets for a service named dlq.
_NOT_SETTINGS: Final = (
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
_ALMOST: Final = 0.85  # similarity from which an unknown name counts as misspelled


class Work(Struct, frozen=True, kw_only=True):
    """Settings of `dlq work`."""

    processes: Count = 1
    health_host: Text = "127.0.0.1"
    health_port: Port | None = None  # None: no health listener
    watchdog: Seconds = 720.0  # without a heartbeat before a restart; 0: no watchdog


class Oidc(Struct, frozen=True, kw_only=True):
    """Sign-in to the console with an OpenID provider. Tokens keep working beside it."""

    issuer: Text | None = None  # the URL of the provider; None: nobody signs in with one
    client_id: Text | None = None  # under which the provider knows this console
    client_secret: Text | None = None
    client_secret_file: Text | None = None  # a file with the secret, instead of it
    url: Text | None = None  # of this console, as browsers see it: https://dlq.example
    name: Text = "single sign-on"  # of the provider, on the button
    scopes: Names = ("openid", "profile", "email")
    name_claim: Text = "email"  # the actor in the audit
    role_claim: Text = "groups"  # with dots for claims in claims: realm_access.roles
    readers: Names = ()  # values of the role claim that make a reader
    operators: Names = ()
    admins: Names = ()
    sources_claim: Text | None = None  # mailboxes that one may see, `*` for all; None: all
    hours: Hours = 8.0  # length of such a session, at most serve.session_hours
    skew: Seconds = 60.0  # that the clocks of provider and server may differ


class Serve(Struct, frozen=True, kw_only=True):
    """Settings of `dlq serve`."""

    host: Text = "127.0.0.1"  # the address to listen on; others than this machine need access
    port: AnyPort = 8418  # 0: a free port
    access: Literal["on", "off"] = "on"  # whether callers need a token
    metrics: Literal["token", "open"] = "token"  # whether /metrics needs a token, too
    console: Literal["on", "off"] = "on"  # whether the web console is served
    queue_codes: QueueCodes = "deadletter"  # of errors under /v1
    replay_to: Names = ()  # mailboxes to which replays may send letters, besides their own
    approve_above: AnyCount = 0  # letters above which a replay needs a second person; 0: never
    body_limit: Count = 32 * 1024 * 1024  # bytes of one request
    session_hours: Hours = 12.0  # length of a session
    proxies: Names = ()  # addresses whose X-Forwarded-For and -Proto are trusted
    search_seconds: Seconds = 2.0  # of a search, before it returns what it has found
    search_share: Share = 20.0  # seconds of costly searches per minute, for each caller
    notice: Seconds = 0.0  # between failing readiness and stopping
    grace: Seconds = 30.0  # for requests in progress when the server stops
    retention_every: Hours | None = None  # between retention runs (default: never)
    graph: Text | None = None  # a pipeline's graph (JSON): the topics of nodes with other names
    oidc: Oidc = Oidc()


class Access(Struct, frozen=True, kw_only=True):
    """Store of tokens, if the engine and its office cannot keep them."""

    store: Text = ACCESS  # a SQLite file, used with offices such as MongoDB only


class Anchors(Struct, frozen=True, kw_only=True):
    """Places to which `dlq serve` and `dlq work` write the end of the audit."""

    file: Text | None = None  # a file to append to, which `dlq verify` checks
    webhook: Text | None = None  # a URL to post to
    secret: Text | None = None  # to sign the webhook; whsec_ and base64, or a text
    every: Seconds = 3_600.0  # seconds between two checks


class RetentionDays(Struct, frozen=True, kw_only=True):
    """Days to keep finished letters. Unreviewed letters never expire."""

    closed: Days = 90
    replayed: Days = 90
    discarded: Days = 90
    ledger: Days = 30


class SourceServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of another system, from which letters are drained and to which they return."""

    url: Text  # as for `dlq drain`


Sources = Annotated[
    dict[Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")], SourceServer],
    Meta(title="sections [sources.NAME] with a url"),
]


class IntakePlace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dead queue of another system that `dlq serve` takes letters from."""

    name: IntakeName  # as the console and the API call it
    server: Text  # a name of [sources.NAME]
    place: Text  # the dead queue, topic or registry there, as for `dlq drain`
    trusted: Names = ()  # mailboxes that headers may name as the source; * matches any text
    follow: bool = False  # take in what arrives, from the start of the server


IntakePlaces = Annotated[
    tuple[IntakePlace, ...],
    Meta(title="a list of sections [[intake]] with a name, server and place"),
]


class Settings(Struct, frozen=True, kw_only=True):
    """All settings."""

    url: Text = OFFICE  # the engine: mailboxes, office, ledger
    office: Text | None = None  # the store of letters, if it is not the engine itself
    office_durability: OfficeDurability = "power-safe"  # the least durability of an office
    app: Text | None = None  # module:name of the application with the handlers
    rules: Text | None = None  # a TOML file of rules that are tried before those of handlers
    signing_keys: Names = ()  # to sign headers (default: a key of the office)
    index_bodies: Indexed | None = None  # largest body whose words are indexed; 0: none
    depth_threshold: Count = 100  # open letters of one mailbox from which health warns
    groups_per_day: Count = GROUPS_PER_DAY  # new groups of a source, error and frame
    presume_after: Seconds = 600.0  # until copies to other systems are presumed; 0: never
    sources: Sources = {}  # servers of other systems, by name
    intake: IntakePlaces = ()  # dead queues of these servers that `dlq serve` can take in
    work: Work = Work()
    serve: Serve = Serve()
    access: Access = Access()
    alerts: Alerts = Alerts()
    anchors: Anchors = Anchors()
    retention_days: RetentionDays = RetentionDays()

    @property
    def source_urls(self) -> dict[str, str]:
        """Return the URLs of the servers of other systems, by name."""
        return {name: source.url for name, source in self.sources.items()}

    def __repr__(self) -> str:
        """Return the fields, without passwords in URLs and without keys."""
        oidc = self.serve.oidc
        secret = None if oidc.client_secret is None else "..."
        hidden = structs.replace(
            self,
            signing_keys=("...",) * len(self.signing_keys),
            serve=structs.replace(self.serve, oidc=structs.replace(oidc, client_secret=secret)),
        )
        return redact(super(Settings, hidden).__repr__())


def describe_settings(settings: Settings) -> list[tuple[str, str, bool]]:
    """
    Return all settings by dotted key, as text, and whether each has its default.

    Passwords in URLs, keys, and the targets and secrets of notices are masked.
    """
    return [
        (key, _shown(key, value), value == default)
        for (key, value), (_, default) in zip(_values(settings), _values(Settings()), strict=True)
    ]


def _values(section: Struct, under: str = "") -> Iterator[tuple[str, Any]]:
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, Struct):
            yield from _values(value, f"{under}{name}.")
        else:
            yield f"{under}{name}", value


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "not set"
    if key in _SECRET or is_secret_name(key):
        count = len(value) if isinstance(value, tuple) else 1
        return f"{count} set" if value else "none"
    if isinstance(value, dict):
        urls = [f"{name} = {redact(entry.url)}" for name, entry in value.items()]
        return ", ".join(urls) or "none"
    if isinstance(value, tuple):
        return ", ".join(redact(str(one)) for one in value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else redact(str(value))


def load_settings(path: str | Path | None = None, *, environ: Mapping[str, str]) -> Settings:
    """
    Read the settings: the file at `path`, and then variables in `environ`.

    Without a path, the file is the one in `DLQ_CONFIG`, or else `deadletter.toml` in the
    current directory, which may be missing.
    """
    named = path or environ.get("DLQ_CONFIG")
    file = Path(named or FILE)
    found = _read(file, required=bool(named))
    flat = _flat(found, str(file))
    values = {key: (value, f"{key} in {file}") for key, value in flat.items()}
    if isinstance(rules := flat.get("rules"), str):  # relative to the settings file
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
        raise ConfigError(f"Could not read {file}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from error


def _flat(found: Mapping[str, Any], where: str, under: str = "") -> dict[str, Any]:
    """Return the file as dotted keys and values; raise ConfigError for unknown keys."""
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
        if key is not None and value:  # an empty variable counts as unset
            values[key] = (value, name)
        elif key is None and name.startswith(PREFIX) and not name.startswith(_NOT_SETTINGS):
            # Other programs may use variables with this prefix, so only a probable
            # misspelling is an error.
            near = get_close_matches(name, _VARIABLES, 1, _ALMOST)
            if near:
                raise ConfigError(f"{name} is not a setting. Did you mean {near[0]}?")
    return values


def _built(values: Mapping[str, tuple[Any, str]]) -> Settings:
    nested: dict[str, Any] = {}
    for key, (value, where) in values.items():
        *sections, name = key.split(".")
        fields = nested
        for section in sections:
            fields = fields.setdefault(section, {})
        fields[name] = _converted(key, value, where)
    return msgspec.convert(nested, Settings)


def _converted(key: str, value: Any, where: str) -> Any:
    kind = _KEYS[key]
    # Only variables are converted from text: "8080" in the file is an error.
    in_file = not where.startswith(PREFIX)
    try:
        given = value if in_file else _listed(value, kind)
        return msgspec.convert(given, kind, strict=in_file)
    except msgspec.DecodeError as error:
        expected = must_be(kind)
        if entries_of(kind):  # the error names the entry and field, never the value
            wrong = with_choices(str(error), kind)
            raise ConfigError(f"{where} must be {expected}: {wrong}.") from None
        shown = redact(repr(value))
        raise ConfigError(f"{where} must be {expected}, not {shown}.") from None


def _listed(value: str, kind: Any) -> Any:
    """Parse a variable: a list is JSON or separated by commas; sections are JSON."""
    if get_origin(_bare(kind)) is dict:
        return msgspec.json.decode(value)
    if get_origin(_bare(kind)) is not tuple:
        return value
    if value.lstrip().startswith("["):
        return msgspec.json.decode(value)
    return [word for part in value.split(",") if (word := part.strip())]


def must_be(kind: Any) -> str:
    """Return what a setting of this type should be, in words."""
    for option in (kind, *get_args(kind)):  # for X | None the title is on X
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
    """Return a type without None and annotations."""
    while True:
        options = [one for one in get_args(kind) if one is not NoneType]
        if get_origin(kind) is Annotated or (
            get_origin(kind) in (UnionType, Union) and len(options) == 1
        ):
            kind = options[0]
        else:
            return kind


def entries_of(kind: Any) -> type[Struct] | None:
    """Return the Struct of the entries, if a setting is a list of them or has sections."""
    bare = _bare(kind)
    kinds = get_args(bare) or (None,)
    entry = {tuple: kinds[0], dict: kinds[-1]}.get(get_origin(bare) or bare)
    is_struct = isinstance(entry, type) and issubclass(entry, Struct)
    return entry if is_struct else None


def _hint(key: str) -> str:
    near = get_close_matches(key, [*_KEYS, *_SECTIONS], 1, 0.5)
    return f" Did you mean {near[0]}?" if near else f" Known: {', '.join(_KEYS)}."


def _leaves(kind: type[Struct], under: str = "") -> dict[str, Any]:
    """Return the types of all settings, by dotted key."""
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
