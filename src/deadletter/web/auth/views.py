"""Tokens as they are shown to people: without what they are known by."""

from msgspec import structs

from deadletter.core.access import IssuedToken, Token, TokenView


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
