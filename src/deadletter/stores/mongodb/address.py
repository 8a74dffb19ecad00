"""The URL: what is ours in it, and what the client library understands."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from bson.errors import BSONError
from msgspec import Struct
from pymongo import errors as theirs

from deadletter.core.errors import ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.kit import check_files

_DATABASE: Final = "deadletter"
_FILES: Final = ("tlsCAFile", "tlsCertificateKeyFile", "tlsCRLFile")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)
_URL: Final = re.compile(r"(mongodb(?:\+srv)?)://([^/?#]+)(?:/([^?#]*))?(?:\?([^#]*))?")


class Address(Struct, frozen=True, kw_only=True):
    """Where the server is, and where in it our collections are."""

    url: str  # for the client library
    shown: str  # without user and password
    database: str = _DATABASE
    prefix: str = ""
    options: tuple[tuple[str, str], ...] = ()  # for the client library, in `url` too


def read_url(url: str) -> Address:
    """What a URL says; a ConfigError when it makes no sense."""
    found = _URL.fullmatch(url)
    if found is None:
        # The URL stays out of it: it may hold a password.
        raise ConfigError(
            "the MongoDB URL cannot be read: write it like"
            " mongodb://user:password@host:27017/name?replicaSet=rs0"
        )
    scheme, netloc, path, query = found.groups(default="")
    database = unquote(path) or _DATABASE
    _check("the database", database)
    prefix = ""
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "prefix":
            _check("prefix", value)
            prefix = value
        else:
            theirs.append((name, value))
    named = dict(theirs)
    check_files("MongoDB", {one: named[one] for one in _FILES if named.get(one)})
    # Whom one logs in to is the database in the path, if there is one: it must
    # not appear in it because we have a name for it.
    their_path = quote(path, safe="%")
    return Address(
        url=f"{scheme}://{netloc}/{their_path}?{urlencode(theirs)}",
        shown=f"{netloc.rpartition('@')[2]}/{database}",
        database=database,
        prefix=prefix,
        options=tuple(theirs),
    )


def _check(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} in the MongoDB URL is named {name[:60]!a}: use letters, digits, _"
            " and -, at most 60"
        )


# Errors of the server and its client library, as ours: one table.

TROUBLE: Final = (
    theirs.PyMongoError,
    BSONError,
    OverflowError,  # a number that no document can hold
    OSError,  # with TimeoutError
)
"""Whatever talking to a server may raise."""

_NO_TRANSACTIONS: Final = (
    "this server has no transactions: make it a replica set, of one member if need be"
    " (mongod --replSet rs0, then rs.initiate())"
)
_NOBODY: Final = (
    "no server that takes writes can be reached: see that it runs, that host and port"
    " in the URL are right, that the replica set has a primary, and whether it wants"
    " TLS (?tls=true) or a certificate (?tlsCertificateKeyFile=)"
)
_NO_TLS: Final = (
    "the server and we do not agree on TLS: give its authority's certificate as"
    " ?tlsCAFile=, and ours as ?tlsCertificateKeyFile= if it wants one"
)
_TOO_LARGE: Final = "a letter has more than 16 MB beside its body, in headers or elsewhere"
_TOO_MUCH: Final = (
    "this is more than fits into the server's cache at once: keep less in one go, or"
    " give the server more (--wiredTigerCacheSizeGB)"
)
_RIGHTS: Final = (
    "this user may not do that: give it readWrite on the database"
    " (db.grantRolesToUser(NAME, [{role: 'readWrite', db: …}]))"
)
_LOGIN: Final = (
    "the server refuses this user: check user and password in the URL, and say where"
    " the user is kept when that is another database (?authSource=admin)"
)

# What the server answers, by code.
_CODES: Final[dict[int, tuple[type[DeadLetterError], str]]] = {
    8000: (ConfigError, _LOGIN),  # as Atlas says it
    18: (ConfigError, _LOGIN),
    13: (ConfigError, _RIGHTS),
    20: (ConfigError, _NO_TRANSACTIONS),
    50: (Unavailable, "it took too long: search for something narrower"),
    64: (Unavailable, "too few members of the replica set have confirmed it"),
    85: (ConfigError, "there is another index of that name: drop it, or use ?prefix="),
    86: (ConfigError, "there is another index of that name: drop it, or use ?prefix="),
    112: (Unavailable, "others were in the way all the time"),
    121: (Refused, "a validation rule of the collection refuses it"),
    239: (Unavailable, "it took too long, what was being read is gone: try again"),
    246: (Unavailable, "the server cannot show a state of all its data yet"),
    251: (Unavailable, "the transaction was ended by the server"),
    11000: (Unavailable, "somebody else was faster"),
    388: (Refused, _TOO_MUCH),
    10334: (Refused, _TOO_LARGE),
    17280: (Refused, "a text in it is too long for an index"),
    14031: (Unavailable, "the server has no disk space left"),
}

# What the client library says by itself; first match wins.
_KINDS: Final[tuple[tuple[type[Exception], type[DeadLetterError], str], ...]] = (
    (theirs.ConfigurationError, ConfigError, "the URL cannot be used"),
    (theirs.DocumentTooLarge, Refused, _TOO_LARGE),
    (theirs.ServerSelectionTimeoutError, Unavailable, _NOBODY),
    (theirs.WaitQueueTimeoutError, Unavailable, "all connections are in use"),
    (theirs.NotPrimaryError, Unavailable, "the server only reads at the moment"),
    (theirs.ConnectionFailure, Unavailable, "the connection broke"),
    (theirs.OperationFailure, Refused, "the server refuses this"),
    (theirs.InvalidOperation, Unavailable, "the client is closed"),
    (theirs.PyMongoError, Unavailable, "the client is in trouble"),
    (BSONError, Refused, "no document can hold this"),
    (OverflowError, Refused, "a number or a time is too large for a document"),
    (OSError, Unavailable, "the server cannot be reached"),
)


def explained(error: BaseException, where: str) -> DeadLetterError:
    """Our error for one of theirs, saying what to do."""
    kind, saying = _entry(error)
    return kind(f"MongoDB at {where}: {saying} ({_first_line(error)})")


def while_running(error: DeadLetterError) -> DeadLetterError:
    """
    The same, for a process that has been working before.

    What it was told worked once, so whatever has changed may change back: it goes
    on trying, and says why it cannot.
    """
    if isinstance(error, ConfigError):
        return Unavailable(str(error))
    return error


def is_passing(error: BaseException) -> bool:
    """Whether the same transaction may well succeed in a moment."""
    if isinstance(error, theirs.ServerSelectionTimeoutError):
        return False  # there was time enough
    return isinstance(error, theirs.PyMongoError) and error.has_error_label(
        "TransientTransactionError"
    )


def is_unsure(error: BaseException) -> bool:
    """Whether nobody knows if it was committed: committing again tells."""
    return isinstance(error, theirs.PyMongoError) and error.has_error_label(
        "UnknownTransactionCommitResult"
    )


def _entry(error: BaseException) -> tuple[type[DeadLetterError], str]:
    code = _code(error)
    if code in _CODES:
        return _CODES[code]
    if isinstance(error, theirs.ConnectionFailure) and "[SSL" in str(error):
        return ConfigError, _NO_TLS  # that it was TLS is only in the words
    for kind, ours, saying in _KINDS:
        if isinstance(error, kind):
            return ours, saying
    raise error


def _code(error: BaseException) -> int:
    if isinstance(error, theirs.BulkWriteError):
        first = (error.details.get("writeErrors") or [{}])[0]
        return int(first.get("code", 0))
    if isinstance(error, theirs.OperationFailure):
        return error.code or 0
    return 0


def _first_line(error: BaseException) -> str:
    # What the client library thinks of its timeouts and servers helps nobody.
    said = (str(error) or type(error).__name__).partition("\n")[0]
    for noise in (" (configured timeouts", ", Timeout: ", ", full error: "):
        said = said.partition(noise)[0]
    return said[:300]
