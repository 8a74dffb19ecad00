"""The URL: what is ours in it, and what the client library understands."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.tls import check_files

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
