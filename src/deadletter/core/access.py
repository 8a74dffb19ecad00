"""Who may do what: roles, and what a token or a session stands for."""

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
