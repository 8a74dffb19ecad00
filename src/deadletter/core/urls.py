"""URLs that name a file or a server, and what is said of wrong ones."""

from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from .errors import ConfigError
from .redact import redact


def unreadable(kind: str) -> ConfigError:
    """
    A URL that cannot be taken apart.

    Nothing of it is told: what stands where a port should may be a password.
    """
    return ConfigError(
        f"this {kind} URL cannot be read: its port is a number up to 65535, and in a"
        " user or password / ? # @ : [ ] are written %2F %3F %23 %40 %3A %5B %5D"
    )


def sqlite_file(url: str) -> PurePath:
    """Return the file that an SQLite URL names; ConfigError if it names none."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if not url.partition(":")[2].startswith("///") or not path:
        raise ConfigError(
            f"{redact(url)!a} names no file: write sqlite:///name.db for a file in this"
            " folder, or sqlite:////full/path.db"
        )
    if parts.fragment:
        raise ConfigError(
            f"{redact(url)!a} has a #, which begins something else than a path: write"
            " it as %23"
        )
    if path == ":memory:":
        raise ConfigError("there is no sqlite engine in memory: use memory://")
    return PurePath(path)
