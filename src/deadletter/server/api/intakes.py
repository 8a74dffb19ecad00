"""Routes of intakes: dead queues of other systems that this server takes letters from."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import get, post
from litestar.params import JSONBody, PathParameter
from msgspec import Meta, Struct

from deadletter.core.access import Role
from deadletter.core.intakes import IntakeStatus, Sighting
from deadletter.server.acting import intake_acts
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who

from .letters import Reason

ACT: Final = [needs(Role.OPERATOR)]
Name: TypeAlias = Annotated[
    str, PathParameter(max_length=64, description="The name of a section [[intake]].")
]


class LookWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many messages to look at."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class TakeWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many messages to take in; without `limit` all that are there."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    reason: Reason = ""


class IntakeWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: Reason = ""


@get("/intakes", guards=[needs(Role.READER)])
async def list_intakes(context: Here, who: Who) -> Sequence[IntakeStatus]:
    """
    List the intakes of this server, in the order of its settings.

    Their numbers begin with the start of the server. Callers that are limited to some
    mailboxes see none: letters of an intake may belong to any mailbox.
    """
    return intake_acts.list_intakes(context, who)


@post("/intakes/{name:str}/look", guards=ACT, status_code=200)
async def look_at_intake(
    context: Here, who: Who, name: Name, data: JSONBody[LookWish]
) -> Sequence[Sighting]:
    """
    Show the first messages of a place as the letters that they would become.

    All of them stay. A broker that counts deliveries may count this look.
    """
    return await intake_acts.look_at_intake(context, who, name, limit=data.limit)


@post("/intakes/{name:str}/take", guards=ACT, status_code=200)
async def take_from_intake(
    context: Here, who: Who, name: Name, data: JSONBody[TakeWish]
) -> IntakeStatus:
    """
    Take in messages of a place: each becomes a letter and leaves the place.

    Answers after two seconds at most with the state of then; the server goes on.
    """
    return await intake_acts.take_from_intake(
        context, who, name, limit=data.limit, reason=data.reason
    )


@post("/intakes/{name:str}/follow", guards=ACT, status_code=200)
async def follow_intake(
    context: Here, who: Who, name: Name, data: JSONBody[IntakeWish]
) -> IntakeStatus:
    """Take in what arrives at a place, until it is stopped or the server ends."""
    return await intake_acts.follow_intake(context, who, name, reason=data.reason)


@post("/intakes/{name:str}/stop", guards=ACT, status_code=200)
async def stop_intake(
    context: Here, who: Who, name: Name, data: JSONBody[IntakeWish]
) -> IntakeStatus:
    """Stop following a place, or taking from it. What was taken and not kept stays there."""
    return await intake_acts.stop_intake(context, who, name, reason=data.reason)


routes: Final[list[Any]] = [
    *(list_intakes, look_at_intake, take_from_intake, follow_intake, stop_intake)
]
