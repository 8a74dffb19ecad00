"""Tokens: made, listed, revoked."""

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Response, delete, get, post
from litestar.exceptions import PermissionDeniedException
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import IssuedToken, Pass, Role, TokenView
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.server.context import Here, Place, Who
from deadletter.server.idempotency import SHOWN_ONCE, middleware, seen_before

from .guards import needs
from .keys import Keys, covers, issued, view

_ADMIN: Final = [needs(Role.ADMIN)]

_Id: TypeAlias = Annotated[
    str, PathParameter(max_length=16, description="The part between the underscores.")
]
_Reason: TypeAlias = Annotated[
    str, QueryParameter(max_length=1000, description="Why; goes into the audit.")
]


class NewToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a token is to be."""

    name: Annotated[str, Meta(min_length=1, max_length=200, examples=["ci"])]
    role: Role = Role.READER
    sources: tuple[str, ...] = ()  # may see only these mailboxes; empty: all
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""


@get("/tokens", guards=_ADMIN, operation_id="list_tokens")
async def list_tokens(place: Here, who: Who) -> list[TokenView]:
    """The tokens there are, by name and all at once; never what they are known by."""
    return [view(token) for token in await keys(place).list(who)]


def _made_before(answered: bytes) -> Conflict:
    made = msgspec.json.decode(answered, type=TokenView)
    return Conflict(
        f"token {made.id} was made with this key, and a token is shown once only: if"
        " nobody has it, revoke it and make another with a new key"
    )


@post(
    "/tokens",
    guards=_ADMIN,
    operation_id="issue_token",
    before_request=seen_before,
    middleware=[middleware],
    opt={SHOWN_ONCE: _made_before},
)
async def issue_token(place: Here, who: Who, data: JSONBody[NewToken]) -> Response[IssuedToken]:
    """
    Make a token. It is shown in this answer and never again.

    An `Idempotency-Key` makes sure that it is made once. The secret is not kept for
    that: the same request again is a conflict, which names the token.

    Nobody can make one that sees more mailboxes than they do, and who is limited to
    some names it after themselves: `mail-team` makes `mail-team/ci`.
    """
    to = Pass(name=data.name, role=data.role, sources=data.sources)
    if who.sources and not f"{data.name}/".startswith(f"{who.name}/"):
        raise PermissionDeniedException(
            f"names that you hand out begin with your own: {who.name}/{data.name}"
        )
    if not covers(who, to):
        raise PermissionDeniedException(
            f"you see only {', '.join(who.sources)}: name mailboxes among these"
        )
    by = By(who.name, data.reason)
    token, shown = await keys(place).issue(to, by, expires_at=data.expires_at)
    return Response(issued(token, shown))


@delete("/tokens/{id:str}", guards=_ADMIN, operation_id="revoke_token")
async def revoke_token(place: Here, who: Who, id: _Id, reason: _Reason = "") -> None:
    """End a token and every session opened with it, everywhere, at once."""
    await keys(place).revoke(id, By(who.name, reason), seen_by=who)


def keys(place: Place) -> Keys:
    """The tokens of this place; with access off there are none."""
    if place.access is None:
        raise Conflict("access is off: there are no tokens here")
    return Keys(place.access, place.store, place.clock)


routes: Final[list[Any]] = [list_tokens, issue_token, revoke_token]
