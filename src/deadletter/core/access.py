"""Who may do what: roles, and what a token or a session stands for."""

import unicodedata
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from .letter import By


class Role(StrEnum):
    """What somebody may do; each may do all that the ones before it may."""

    READER = "reader"  # look
    OPERATOR = "operator"  # review, edit, replay, discard; produce and lease
    ADMIN = "admin"  # purge, queues, tokens, import


RANK: Final = {Role.READER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


class Pass(Struct, frozen=True, kw_only=True):
    """
    Somebody who has shown a token or has a session.

    The name is for people, and may come again. What somebody owns belongs to the
    `principal`: each token has its own, and it is never given to another.
    """

    name: str  # goes into the audit as the actor
    role: Role
    sources: tuple[str, ...] = ()  # may see only these mailboxes; empty: all
    principal: str = ""  # none where access is off

    def may(self, role: Role) -> bool:
        """Whether this is enough where `role` is asked for."""
        return RANK[self.role] >= RANK[role]

    def sees(self, source: str) -> bool:
        """Whether letters of this mailbox are any of their business."""
        return not self.sources or source in self.sources

    def owns(self, principal: str) -> bool:
        """Whether what this principal owns is theirs, or they see everything."""
        return not self.sources or (bool(principal) and principal == self.principal)

    def by(self, reason: str = "") -> By:
        """Them, as one who does something."""
        return By(self.name, reason, self.principal)


class Token(Struct, frozen=True, kw_only=True):
    """An API token as it is stored: its secret is not, only the hash of it."""

    id: str
    hash: str
    to: Pass
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    last_used_at: datetime | None = None  # to the hour

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


class TokenView(Struct, frozen=True, kw_only=True):
    """A token, without what it is known by."""

    id: str
    name: str
    role: Role
    sources: tuple[str, ...]  # sees only these mailboxes; empty: all
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None  # to the hour


class IssuedToken(TokenView, frozen=True, kw_only=True):
    """A token that was just made: the only time that it is shown."""

    token: str


class Session(Struct, frozen=True, kw_only=True):
    """Somebody signed in at the console; also known by a hash only."""

    hash: str
    to: Pass
    token_id: str  # the token it was opened with: revoked with it
    csrf: str
    created_at: datetime
    expires_at: datetime


class Answer(Struct, frozen=True, kw_only=True):
    """What was answered to a request with an idempotency key."""

    key: str  # who asked and the key they gave
    request: str  # a hash of what was asked
    status: int | None = None  # None: still being worked on
    body: bytes = b""
    content_type: str = ""
    expires_at: datetime


def to_the_hour(moment: datetime) -> datetime:
    """As exactly as the use of a token is remembered."""
    return moment.replace(minute=0, second=0, microsecond=0)


# Names of people and programs, as the audit shows them.
#
# One who reads the audit must be able to tell who did something. So no name may look
# like another one, or like what the office itself acts under.

LONGEST: Final = 200  # characters
RESERVED: Final = frozenset(
    {
        *("anonymous", "console", "deadletter", "dlq", "intake", "local", "nobody"),
        *("office", "replay", "retention", "server", "sweep", "system", "unknown"),
        "worker",
    }
)
"""What the office acts under, or could be taken for it."""

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
    """Why this cannot be the name of anybody; or None."""
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
    """Whether the office itself acts under this name, or one that looks like it."""
    first = skeleton(name).partition("/")[0]
    return first in _RESERVED or first.startswith("dlq ")


def skeleton(name: str) -> str:
    """What two names have in common that people could mistake for each other."""
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    apart = unicodedata.normalize("NFD", folded)
    return "".join(one for one in apart if not unicodedata.combining(one))


def _scripts(name: str) -> Iterator[str]:
    for letter in name:
        if letter.isalpha():
            yield unicodedata.name(letter, "UNKNOWN").partition(" ")[0]


_RESERVED: Final = frozenset(map(skeleton, RESERVED))
