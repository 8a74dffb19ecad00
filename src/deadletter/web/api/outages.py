"""Outages: when brakes were open, and the word to go on."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.letter import By
from deadletter.core.topology import MAX_NAME
from deadletter.office.outages import (
    Outage,
    Released,
    list_outages,
    not_held,
    release_mailbox,
)
from deadletter.web.auth.guards import needs
from deadletter.web.auth.mailboxes import check_seen
from deadletter.web.given import Here, Who

from .choice import Reason
from .queues import MailboxName


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mailbox whose workers should go on."""

    mailbox: MailboxName
    reason: Reason = ""


@get("/outages", guards=[needs(Role.READER)])
async def get_outages(
    place: Here,
    who: Who,
    mailbox: Annotated[str | None, QueryParameter(max_length=MAX_NAME)] = None,
    open: FromQuery[bool] = False,
    limit: Annotated[int, QueryParameter(ge=1, le=1_000)] = 50,
) -> list[Outage]:
    """
    Times that mailboxes were held back by the brake, the latest first.

    `outage` is for transient failures, `systemic` for one cause that fails nearly
    everything. Windows of several workers that overlap are one here.
    """
    return await list_outages(
        place.store,
        place.clock,
        mailbox=mailbox,
        only=who.sources,
        only_open=open,
        limit=limit,
    )


@post("/outages/release", guards=[needs(Role.OPERATOR)], status_code=200)
async def release_outage(place: Here, who: Who, data: JSONBody[Release]) -> Released:
    """
    Go on, though everything fails: messages are judged by their policy again.

    Workers hear of it within seconds. They do not stop for the same cause for a day.
    """
    check_seen(who, data.mailbox, not_held)
    by = By(who.name, data.reason)
    return await release_mailbox(place.store, data.mailbox, by)


routes: Final[list[Any]] = [get_outages, release_outage]
