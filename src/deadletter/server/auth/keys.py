"""Tokens of an office: issue, list and revoke them, recorded in the audit."""

import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from deadletter.core.access import (
    Identity,
    IssuedToken,
    Role,
    Token,
    TokenView,
    name_problem,
    skeleton,
    to_the_hour,
)
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import By
from deadletter.ports import AccessStore, Clock, LetterStore

# A random secret of 256 bits needs no slow hash, because it cannot be guessed.
_SECRET: Final = 32
_PROVIDED: Final = "sso"
_PRINCIPAL: Final = 16
_SHAPE: Final = r"dlq_[a-z0-9]{1,16}_[0-9a-f]{64}"
_is_token: Final = re.compile(_SHAPE, re.ASCII).fullmatch
_has_token: Final = re.compile(_SHAPE, re.ASCII).search
_is_session: Final = re.compile("[0-9a-f]{64}", re.ASCII).fullmatch


def mint(
    to: Identity,
    *,
    at: datetime,
    by: str,
    expires_at: datetime | None = None,
    id: str | None = None,
) -> tuple[Token, str]:
    """Return a new token as it is stored, and the text that is shown once."""
    name = id or secrets.token_hex(5)
    shown = f"dlq_{name}_{secrets.token_hex(_SECRET)}"
    token = Token(
        id=name,
        hash=token_hash(shown),
        to=replace(to, principal=secrets.token_hex(_PRINCIPAL)),
        created_at=at,
        created_by=by,
        expires_at=expires_at,
    )
    return token, shown


def new_secret() -> str:
    """Return a new random secret for a session or its CSRF token."""
    return secrets.token_hex(_SECRET)


def token_hash(shown: str) -> str:
    """
    Return the hash by which a token is stored.

    A malformed token gets the hash of an empty text, which no token has. So each
    attempt costs one hash of a short text.
    """
    return _hash(shown if _is_token(shown) else "", b"dlq-token")


def session_hash(shown: str) -> str:
    """Return the hash by which a session is stored, as for tokens."""
    return _hash(shown if _is_session(shown) else "", b"dlq-session")


def shows_token(texts: Sequence[str]) -> bool:
    """Return whether any of these contains a token."""
    return any(_has_token(text) for text in texts)


def _hash(text: str, person: bytes) -> str:
    return blake2b(text.encode(), digest_size=32, person=person).hexdigest()


FIRST_LASTS: Final = timedelta(hours=24)
_MOST: Final = 100  # mailboxes of one token


class Keys:
    """The tokens of one office. All changes are recorded in its audit."""

    def __init__(self, access: AccessStore, store: LetterStore, clock: Clock) -> None:
        self._access = access
        self._store = store
        self._clock = clock

    async def issue(
        self, to: Identity, by: By, *, expires_at: datetime | None = None, id: str | None = None
    ) -> tuple[Token, str]:
        """
        Create a token; return it as it is stored, and the text that is shown once.

        Raises ConfigError for invalid values. Raises Conflict if the `id` exists, if the
        name belongs to a token with other mailboxes, or if it looks like another name:
        the audit would be ambiguous.
        """
        now = self._clock.now()
        _check(to)
        looks = skeleton(to.name)
        for known in await self._access.tokens():
            if known.to.name == to.name and {*known.to.sources} != {*to.sources}:
                raise Conflict(
                    f"there is already a token named {to.name!r} that sees other mailboxes:"
                    " choose another name, or revoke that token first"
                )
            if known.to.name != to.name and skeleton(known.to.name) == looks:
                raise Conflict(
                    f"{to.name!a} looks like the name of another token: choose a name that"
                    " cannot be confused with it"
                )
        if expires_at is not None and expires_at <= now:
            raise ConfigError(f"expires_at must be in the future, got {expires_at}")
        token, shown = mint(to, at=now, by=by.actor, expires_at=expires_at, id=id)
        await self._access.add_token(token)
        # The secret is returned only after the token is in the audit.
        await self._store.record("issue", target(token.id), by, _audit_detail(token))
        return token, shown

    async def list(self, seen_by: Identity | None = None) -> list[Token]:
        """Return tokens by name; with `seen_by` those that see no more than that caller."""
        tokens = await self._access.tokens()
        return [t for t in tokens if seen_by is None or covers(seen_by, t.to)]

    async def revoke(self, id: str, by: By, *, seen_by: Identity | None = None) -> Token:
        """
        Revoke a token and its sessions on all servers immediately.

        Raises NotFound if it does not exist, or if the caller may not see it.
        """
        token = next((t for t in await self.list(seen_by) if t.id == id), None)
        if token is None:
            raise NotFound(f"there is no token {id}")
        await self._store.record("revoke", target(id), by, _audit_detail(token))
        await self._access.revoke(id)
        return token

    async def sign_in_token(self, to: Identity, *, expires_at: datetime, by: str) -> Token:
        """
        Return the token of a person who signs in with a provider; nobody knows its secret.

        The person is told apart by `to.principal`. The token is the same as before, with
        the rights of now: if they have changed, earlier sessions end. Raises Conflict if
        the name belongs to another token or looks like the name of one.
        """
        _check(to)
        id_ = f"{_PROVIDED}{to.principal[:10]}"
        looks = skeleton(to.name)
        known = await self._access.tokens()
        for other in known:
            if other.id != id_ and skeleton(other.to.name) == looks:
                raise Conflict(
                    f"the name {to.name!a} belongs to a token of this office, or looks like"
                    " the name of one: the audit would be ambiguous. An administrator can"
                    " revoke that token"
                )
        now = self._clock.now()
        before = next((token for token in known if token.id == id_), None)
        token = Token(
            id=id_,
            hash=before.hash if before else _hash(new_secret(), b"dlq-token"),
            to=to,
            created_at=before.created_at if before else now,
            created_by=before.created_by if before else by,
            expires_at=expires_at,
            last_used_at=to_the_hour(now),
        )
        await self._access.put_token(token)
        if before is None or before.to != to:
            detail = _audit_detail(replace(token, expires_at=None))
            by_server = By("dlq serve", f"signed in with {by}")
            await self._store.record("issue", target(id_), by_server, detail)
        return token


async def first_token(access: AccessStore, store: LetterStore, clock: Clock) -> str | None:
    """
    Create a token for the first administrator; return None if there are valid tokens.

    It is valid for a day, to create other tokens with it. If several servers start at
    once, one of them creates it. It is created again when all tokens have expired.
    """
    now = clock.now()
    if any(not t.is_over(now) for t in await access.tokens()):
        return None
    id_ = f"first{now.timestamp() // FIRST_LASTS.total_seconds():.0f}"
    try:
        _, shown = await Keys(access, store, clock).issue(
            Identity(name="first-administrator", role=Role.ADMIN),
            By("dlq serve", "there was no token"),
            expires_at=now + FIRST_LASTS,
            id=id_,
        )
    except Conflict:
        return None
    return shown


async def opening_token(
    access: AccessStore, store: LetterStore, clock: Clock, *, lasts: timedelta
) -> str:
    """Create the token behind the link of `dlq serve --open`; only its hash is kept."""
    _, shown = await Keys(access, store, clock).issue(
        Identity(name="first-administrator", role=Role.ADMIN),
        By("dlq serve", "opened in a browser"),
        expires_at=clock.now() + lasts,
    )
    return shown


def is_provided(token_id: str) -> bool:
    """Return whether a token belongs to a person who signs in with a provider."""
    return token_id.startswith(_PROVIDED)


def covers(who: Identity, other: Identity) -> bool:
    """Return whether one caller sees everything that another one sees."""
    if not who.sources:
        return True
    return bool(other.sources) and set(other.sources) <= set(who.sources)


def target(id: str) -> str:
    """Return the name of a token in the audit."""
    return f"token:{id}"


def _check(to: Identity) -> None:
    if problem := name_problem(to.name):
        raise ConfigError(f"{problem}: the name of a token is the actor in the audit")
    if len(to.sources) > _MOST:
        raise ConfigError(f"a token can have at most {_MOST} sources, got {len(to.sources)}")
    for source in to.sources:
        if not source or not source.isprintable():
            raise ConfigError(f"{source!a} is not a valid name of a mailbox")


def _audit_detail(token: Token) -> str:
    sees = ", ".join(token.to.sources) or "all mailboxes"
    until = f"until {token.expires_at:%Y-%m-%dT%H:%M:%SZ}" if token.expires_at else ""
    parts = (token.to.name, token.to.role, sees, until)
    return "; ".join(part for part in parts if part)


def view(token: Token) -> TokenView:
    """Return the public part of a token."""
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
    """Return the public part of a new token together with its secret."""
    return IssuedToken(**structs.asdict(view(token)), token=shown)
