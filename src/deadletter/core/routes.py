"""Which dead-letter mailbox a letter is copied to, by what went wrong."""

from typing import Final

from msgspec import Struct

from .errors import ConfigError
from .failure import Failure, Trouble

MAILBOX: Final = "{mailbox}"
"""What the name of a dead-letter mailbox may leave open."""


class Route(Struct, frozen=True, kw_only=True):
    """Which dead-letter mailbox a letter is sent to, by what went wrong."""

    to: str
    trouble: Trouble | None = None
    code: str | None = None
    error: str | None = None  # type name, with or without its module

    def __post_init__(self) -> None:
        check_template("Route(to=...)", self.to)

    def fits(self, failure: Failure) -> bool:
        """Whether every condition that is set holds."""
        name = failure.error_type
        return (
            (self.trouble is None or self.trouble == failure.trouble)
            and (self.code is None or self.code == failure.code)
            and (self.error is None or self.error in (name, name.rpartition(".")[2]))
        )


def check_template(what: str, name: str) -> None:
    """Refuse a name of a dead-letter mailbox that could never be one."""
    rest = name.replace(MAILBOX, "")
    if not rest.strip():
        raise ConfigError(
            f"{what} is {name!r}, which is the mailbox itself or nothing: "
            "name another mailbox, such as '{mailbox}-dlq'."
        )
    if "{" in rest or "}" in rest:
        raise ConfigError(
            f"{what} is {name!r}, but only {{mailbox}} can be filled in: "
            "write the other parts of the name out."
        )
