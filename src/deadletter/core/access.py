"""Access: roles, tokens, sessions, and the names of people and programs."""

import unicodedata
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from .letter import By


class Role(StrEnum):
    """Rights of a token; each role includes those before it."""

    READER = "reader"  # look
    OPERATOR = "operator"  # review, edit, replay, discard; produce and lease
    ADMIN = "admin"  # purge, queues, tokens, import


RANK: Final = {Role.READER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


class Identity(Struct, frozen=True, kw_only=True):
    """
    The identity and rights behind a token or session.

    Names are for people and may repeat. Ownership goes by `principal`: each token has
    its own, and no other token ever gets it.
    """

    name: str  # goes into the audit as the actor
    role: Role
    sources: tuple[str, ...] = ()  # may see only these mailboxes; empty: all
    principal: str = ""  # none where access is off

    def may(self, role: Role) -> bool:
        """Return whether this role includes `role`."""
        return RANK[self.role] >= RANK[role]

    def sees(self, source: str) -> bool:
        """Return whether they may see letters of this mailbox."""
        return not self.sources or source in self.sources

    def owns(self, principal: str) -> bool:
        """Return whether they own what belongs to a principal, or see everything."""
        return not self.sources or (bool(principal) and principal == self.principal)

    def by(self, reason: str = "") -> By:
        """Return them as the author of an action."""
        return By(self.name, reason, self.principal)


class Token(Struct, frozen=True, kw_only=True):
    """An API token as it is stored, with the hash of its secret only."""

    id: str
    hash: str
    to: Identity
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None  # to the hour

    def is_over(self, now: datetime) -> bool:
        """Return whether the token has expired."""
        return self.expires_at is not None and self.expires_at <= now


class TokenView(Struct, frozen=True, kw_only=True):
    """A token as people see it, without its hash."""

    id: str
    name: str
    role: Role
    sources: tuple[str, ...]  # sees only these mailboxes; empty: all
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None  # to the hour


class IssuedToken(TokenView, frozen=True, kw_only=True):
    """A new token, with its secret: the only time that it is shown."""

    token: str


class Session(Struct, frozen=True, kw_only=True):
    """A session of the console, stored with the hash of its secret only."""

    hash: str
    to: Identity
    token_id: str  # the token it was opened with: revoked with it
    csrf: str
    created_at: datetime
    expires_at: datetime


class SessionView(Struct, frozen=True, kw_only=True):
    """A session as people see it, without its secrets."""

    id: str  # short, for people; not the hash
    name: str
    role: Role
    sources: tuple[str, ...]  # sees only these mailboxes; empty: all
    token_id: str  # the token it was opened with
    created_at: datetime
    expires_at: datetime
    current: bool = False  # the session of the caller


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a request with an idempotency key."""

    key: str  # who asked and the key they gave
    request: str  # a hash of what was asked
    status: int | None = None  # None: still being worked on
    body: bytes = b""
    content_type: str = ""
    expires_at: datetime


def to_the_hour(moment: datetime) -> datetime:
    """Return a time to the hour, as exact as the use of tokens is recorded."""
    return moment.replace(minute=0, second=0, microsecond=0)


# Names of people and programs, as the audit shows them.
#
# Readers of the audit must be able to tell who did something. So no name may look like
# another one, or like a name that the office itself uses.

LONGEST: Final = 200  # characters
RESERVED: Final = frozenset(
    {
        *("anonymous", "console", "deadletter", "dlq", "intake", "local", "nobody"),
        *("office", "replay", "retention", "server", "sweep", "system", "unknown"),
        "worker",
    }
)
"""Names that the office itself uses, or that look like one of them"""

# Letters of other scripts that look like Latin ones, and digits that do.
_ALIKE: Final = str.maketrans(
    "аеорсухіјѕԁһԛԝьӏвкмнтгпαβεικνορτυχω01|",  # noqa: RUF001
    "aeopcyxijsdhqwblbkmhtrnabeiknoptuxwoll",
)
_TOGETHER: Final = (  # scripts that people do write in one word
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
)


def name_problem(name: str) -> str | None:
    """Return why a name is invalid, or None if it is valid."""
    if not name.strip() or len(name) > LONGEST or not name.isprintable():
        return f"a name is 1 to {LONGEST} printable characters"
    if name != " ".join(name.split()):
        return "a name neither begins nor ends with a space, nor has two in a row"
    if name != unicodedata.normalize("NFKC", name):
        plain = unicodedata.normalize("NFKC", name)
        return f"{name!a} looks like {plain!a} and is another name: use the latter"
    scripts = frozenset(_scripts(name))
    if len(scripts) > 1 and not any(scripts <= some for some in _TOGETHER):
        told = " and ".join(sorted(one.capitalize() for one in scripts))
        return f"{name!a} mixes letters of {told}, which look alike: use those of one"
    if is_reserved(name):
        return f"{name!a} is, or looks like, a name that the office acts under: choose another one"
    return None


def is_reserved(name: str) -> bool:
    """Return whether the office uses this name, or one that looks like it."""
    first = skeleton(name).partition("/")[0]
    return first in _RESERVED or first.startswith("dlq ")


def skeleton(name: str) -> str:
    """Return a form of a name that is equal for names that look alike."""
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    apart = unicodedata.normalize("NFD", folded)
    return "".join(one for one in apart if not unicodedata.combining(one))


def _scripts(name: str) -> Iterator[str]:
    for letter in name:
        if letter.isalpha():
            yield unicodedata.name(letter, "UNKNOWN").partition(" ")[0]


_RESERVED: Final = frozenset(map(skeleton, RESERVED))
