"""What is said of a URL that is none."""

from .errors import ConfigError


def unreadable(kind: str) -> ConfigError:
    """
    A URL that cannot be taken apart.

    Nothing of it is told: what stands where a port should may be a password.
    """
    return ConfigError(
        f"this {kind} URL cannot be read: its port is a number up to 65535, and in a"
        " user or password / ? # @ : [ ] are written %2F %3F %23 %40 %3A %5B %5D"
    )
