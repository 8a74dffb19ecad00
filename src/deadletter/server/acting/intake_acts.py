"""Acts on intakes: look at a dead queue of another system, take from it, follow it, stop."""

import asyncio
from collections.abc import Sequence
from typing import Final

from deadletter.core.access import Identity, Role
from deadletter.core.errors import NotFound
from deadletter.core.intakes import IntakeStatus, Sighting
from deadletter.core.letter import By
from deadletter.server.auth.guards import check_role
from deadletter.server.context import ServerContext
from deadletter.wiring.place_intake import LOOK, PlaceIntake

SOON: Final = 2.0
"""Seconds that a caller waits for a take; it goes on in the server."""


def list_intakes(context: ServerContext, who: Identity) -> Sequence[IntakeStatus]:
    """
    Return all intakes of this server.

    Their letters may belong to any mailbox, so callers limited to some see none.
    """
    if context.intakes is None or who.sources:
        return ()
    return context.intakes.list()


def intake_named(context: ServerContext, who: Identity, name: str) -> PlaceIntake:
    """Return one intake. Raises NotFound if there is none, or the caller may not see it."""
    if context.intakes is None or who.sources:
        raise NotFound(f"there is no intake {name[:80]!r}; [[intake]] in the settings has them")
    return context.intakes.get(name)


async def look_at_intake(
    context: ServerContext, who: Identity, name: str, *, limit: int = LOOK
) -> Sequence[Sighting]:
    """Return the first messages of a place as the letters that they would become."""
    check_role(who, Role.OPERATOR)
    return await intake_named(context, who, name).look(limit)


async def take_from_intake(
    context: ServerContext, who: Identity, name: str, *, limit: int | None, reason: str = ""
) -> IntakeStatus:
    """
    Take in up to `limit` messages of a place, or all that are there.

    Returns after two seconds at most; the server goes on until it is done.
    """
    check_role(who, Role.OPERATOR)
    intake = intake_named(context, who, name)
    work = intake.take(limit, By(who.name, reason))
    await asyncio.wait({work}, timeout=SOON)
    return intake.status()


async def follow_intake(
    context: ServerContext, who: Identity, name: str, *, reason: str = ""
) -> IntakeStatus:
    """Take in what arrives at a place, until somebody stops it or the server ends."""
    check_role(who, Role.OPERATOR)
    intake = intake_named(context, who, name)
    await intake.follow(By(who.name, reason))
    return intake.status()


async def stop_intake(
    context: ServerContext, who: Identity, name: str, *, reason: str = ""
) -> IntakeStatus:
    """Stop following a place, or taking from it."""
    check_role(who, Role.OPERATOR)
    intake = intake_named(context, who, name)
    await intake.stop(By(who.name, reason))
    return intake.status()
