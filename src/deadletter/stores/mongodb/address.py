"""MongoDB URLs, and the errors of the server and its client library in our words."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from bson.errors import BSONError
from msgspec import Meta, Struct
from pymongo import errors as theirs

from deadletter.core.errors import ConfigError, Refused, Unavailable
from deadletter.kit import ErrorTable, NoAnswer, UrlForm

_DATABASE: Final = "deadletter"
_NAME: Final = r"^[A-Za-z0-9_-]{1,60}\Z"
_EXPECTED: Final = "1 to 60 letters, digits, _ or -"
_EXAMPLE: Final = "mongodb://user:password@host:27017/name?replicaSet=rs0"


class Options(Struct, frozen=True):
    """Parameters of a MongoDB URL that are ours."""

    prefix: Annotated[str, Meta(pattern=_NAME, description=_EXPECTED)] = ""
    documents: Annotated[str, Meta(pattern=r"^courier\Z", description="courier")] = ""
    review: Annotated[str, Meta(pattern=r"^(free|in-order)\Z", description="free or in-order")] = ""


URL: Final = UrlForm(
    "MongoDB",
    {"mongodb": 27017, "mongodb+srv": None},
    Options,
    example=_EXAMPLE,
    many_hosts=True,
    default_host=None,
    is_client_option=lambda name: name not in Options.__struct_fields__,
    client_files=("tlsCAFile", "tlsCertificateKeyFile", "tlsCRLFile"),
)


class Address(Struct, frozen=True, kw_only=True):
    """A server, and the database in it that has our collections."""

    url: str  # for the client library
    where: str  # without user and password
    database: str
    prefix: str
    ours: Options
    options: dict[str, str]  # for the client library, in `url` too

    @property
    def name(self) -> str:
        """The server as errors name it."""
        return f"MongoDB at {self.where}"


def read_url(url: str) -> Address:
    """Read a URL; raises ConfigError."""
    read = URL.read(url)
    if not read.hosts:
        raise ConfigError(f"the MongoDB URL names no host: write it like {_EXAMPLE}")
    database = read.path.removeprefix("/") or _DATABASE
    if not re.match(_NAME, database):
        raise ConfigError(
            f"the database in the MongoDB URL must be {_EXPECTED}, got {database[:60]!a}"
        )
    theirs = read.client_url
    if not read.path:  # the client library wants a / before the parameters
        head, mark, query = theirs.partition("?")
        theirs = f"{head}/{mark}{query}"
    return Address(
        # The database in the path is also where users log in: ours is not added to it.
        url=theirs,
        where=f"{read.where}/{database}",
        database=database,
        prefix=read.options.prefix,
        ours=read.options,
        options=read.client_options,
    )


# Errors by the code of the server's answer, or else by class.

HINT: Final = (
    "Does the replica set have a primary? Does it require TLS (?tls=true) or a certificate"
    " (?tlsCertificateKeyFile=)?"
)
_TLS: Final = "tls"  # a ConnectionFailure whose text alone says that TLS failed
_TOO_LARGE: Final = (
    "the letter has more than 16 MB beside its body: shorten its headers or its errors"
)
_LOGIN: Final = (
    "the server rejects this user: check user and password in the URL, and name the"
    " database that has the user if it is another one (?authSource=admin)"
)
_OTHER_INDEX: Final = "another index has this name: drop it, or use ?prefix="


def _codes(error: Exception) -> Sequence[int | str]:
    if isinstance(error, theirs.BulkWriteError):
        first = (error.details.get("writeErrors") or [{}])[0]
        return (int(first.get("code", 0)),)
    if isinstance(error, theirs.OperationFailure):
        return (error.code or 0,)
    if isinstance(error, theirs.ConnectionFailure) and "[SSL" in str(error):
        return (_TLS,)
    return ()


def _first_line(error: BaseException) -> str:
    # Without what the client library adds about its timeouts and servers.
    text = (str(error) or type(error).__name__).partition("\n")[0]
    for noise in (" (configured timeouts", ", Timeout: ", ", full error: "):
        text = text.partition(noise)[0]
    return text[:300]


ERRORS: Final = ErrorTable(
    "MongoDB",
    {
        50: (Unavailable, "the operation took too long: search for something narrower"),
        64: (Unavailable, "too few members of the replica set have confirmed the write"),
        112: (Unavailable, "other writers were in the way all the time: try again"),
        121: (Refused, "a validation rule of the collection refuses the document"),
        239: (Unavailable, "reading took so long that the snapshot is gone: try again"),
        246: (Unavailable, "the server has no snapshot of all its data yet: try again"),
        251: (Unavailable, "the server has ended the transaction: try again"),
        11000: (Unavailable, "another writer was faster: try again"),
        388: (
            Refused,
            (
                "this is more than fits into the server's cache at once: keep fewer letters"
                " at once, or give the server more memory (--wiredTigerCacheSizeGB)"
            ),
        ),
        10334: (Refused, _TOO_LARGE),
        17280: (Refused, "a text is too long for an index"),
        14031: (Unavailable, "the server has no disk space left"),
        theirs.DocumentTooLarge: (Refused, _TOO_LARGE),
        theirs.ServerSelectionTimeoutError: (NoAnswer, "no server that accepts writes answers"),
        theirs.WaitQueueTimeoutError: (Unavailable, "all connections are in use"),
        theirs.NotPrimaryError: (Unavailable, "the server is read-only at the moment"),
        theirs.ConnectionFailure: (NoAnswer, "the connection broke"),
        theirs.OperationFailure: (Refused, "the server refuses this"),
        theirs.InvalidOperation: (Unavailable, "the client is closed"),
        theirs.PyMongoError: (Unavailable, "the client library failed"),
        BSONError: (Refused, "no document can hold this"),
        OverflowError: (Refused, "a number or a time is too large for a document"),
        OSError: (NoAnswer, "the server cannot be reached"),  # TimeoutError is one
    },
    configuration={
        18: _LOGIN,
        8000: _LOGIN,  # of Atlas
        13: (
            "this user lacks a permission: give it readWrite on the database"
            " (db.grantRolesToUser(NAME, [{role: 'readWrite', db: …}]))"
        ),
        20: (
            "this server has no transactions: make it a replica set, of one member if need be"
            " (mongod --replSet rs0, then rs.initiate())"
        ),
        85: _OTHER_INDEX,
        86: _OTHER_INDEX,
        _TLS: (
            "the TLS handshake failed: give the authority's certificate as ?tlsCAFile=, and"
            " ours as ?tlsCertificateKeyFile= if the server requires one"
        ),
        theirs.ConfigurationError: "the URL is invalid: correct its parameters",
    },
    codes=_codes,
    text=_first_line,
    tls_options=("?tlsCAFile=", "?tlsCertificateKeyFile="),
)


def is_passing(error: BaseException) -> bool:
    """Return whether the same transaction may well succeed in a moment."""
    if isinstance(error, theirs.ServerSelectionTimeoutError):
        return False  # it has waited long enough
    return isinstance(error, theirs.PyMongoError) and error.has_error_label(
        "TransientTransactionError"
    )


def is_unsure(error: BaseException) -> bool:
    """Return whether a commit may have taken effect or not: committing again is safe."""
    return isinstance(error, theirs.PyMongoError) and error.has_error_label(
        "UnknownTransactionCommitResult"
    )
