"""Tokens as they are shown to people: without what they are known by."""

from datetime import datetime

from msgspec import Struct, structs

from deadletter.core.access import Role, Token


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


def view(token: Token) -> TokenView:
    """What may be told of a token."""
    return TokenView(
        id=token.id,
        name=token.to.name,
        role=token.to.role,
        sources=token.to.sources,
        created_at=token.created_at,
        created_by=token.created_by,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
    )


def issued(token: Token, shown: str) -> IssuedToken:
    """A new token, this once with its secret."""
    return IssuedToken(**structs.asdict(view(token)), token=shown)
