"""Routes of deaths over time, and of the marks that explain them."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import get
from litestar.params import FromQuery, QueryParameter

from deadletter.core.access import Role
from deadletter.core.deaths import By
from deadletter.office.deaths import MOST_NAMES, NAMES, DeathChart, Mark, moment, step_called
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who

Moment: TypeAlias = Annotated[
    str | None,
    QueryParameter(max_length=40, description="A time, or a duration before now such as `24h`."),
]


@get("/deaths", guards=[needs(Role.READER)])
async def get_deaths(
    *,
    context: Here,
    who: Who,
    since: Moment = None,
    until: Moment = None,
    step: Annotated[str | None, QueryParameter(max_length=20)] = None,
    by: FromQuery[By] = By.NONE,
    source: Annotated[str | None, QueryParameter(max_length=512)] = None,
    group: Annotated[str | None, QueryParameter(max_length=200)] = None,
    most: Annotated[int, QueryParameter(ge=1, le=MOST_NAMES)] = NAMES,
) -> DeathChart:
    """
    Return deaths over time, by default of the last 24 hours in steps of 5 minutes.

    `step` is `5m` for the last 48 hours, `1h` for the last 31 days, or `1d`. `by` tells
    mailboxes, groups or versions apart: the `most` with most deaths, the others together
    under an empty name. A letter that died twice counts twice. An office in MongoDB does not
    count deaths over time.
    """
    now = context.clock.now()
    return await context.office.deaths(
        since=None if since is None else moment(since, now),
        until=None if until is None else moment(until, now),
        step=None if step is None else step_called(step),
        by=by,
        source=source,
        sources=who.sources,
        group=group,
        most=most,
    )


@get("/marks", guards=[needs(Role.READER)])
async def get_marks(
    context: Here, who: Who, since: Moment = None, until: Moment = None
) -> Sequence[Mark]:
    """
    Return what happened while letters died, by default in the last 24 hours.

    Versions of applications that were first seen, outages during which workers stopped
    receiving, and replays that were started; earliest first.
    """
    now = context.clock.now()
    return await context.office.marks(
        since=None if since is None else moment(since, now),
        until=None if until is None else moment(until, now),
        sources=who.sources,
        owner=who.principal if who.sources else None,
    )


routes: Final[list[Any]] = [get_deaths, get_marks]
