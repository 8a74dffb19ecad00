"""Groups: what broke, by cause, and how each cause stands."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from litestar import get, put
from litestar.params import FromQuery, JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct, structs

from deadletter.core.access import Pass, Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By, GroupStatus, still_open
from deadletter.office import groups as office
from deadletter.office.groups import GroupLine, GroupPage
from deadletter.web.auth.guards import needs
from deadletter.web.given import Here, Who
from deadletter.web.paging import After, Limit
from deadletter.web.place import Place

from .choice import Reason

Name: TypeAlias = Annotated[
    str,
    PathParameter(
        max_length=200, description="The group's fingerprint, or the beginning of it."
    ),
]
ShortText: TypeAlias = Annotated[str, Meta(max_length=200)]


class Say(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a group stands from now on."""

    status: Literal["ongoing", "snoozed", "resolved", "muted"]
    until: Annotated[datetime, Meta(tz=True)] | None = None  # of a snooze
    version: ShortText = ""  # resolved from this version on
    owner: ShortText | None = None  # "" is nobody
    reason: Reason = ""


@get("/groups", guards=[needs(Role.READER)])
async def list_groups(
    *,
    place: Here,
    who: Who,
    source: Annotated[str | None, QueryParameter(max_length=512)] = None,
    status: FromQuery[GroupStatus | None] = None,
    everything: FromQuery[bool] = False,
    limit: Limit = 100,
    after: After = None,
) -> GroupPage:
    """
    Groups of like failures, those with most open letters first.

    Those with open letters that are neither snoozed nor muted; all of one `status` if
    one is asked for; with `everything` really all. A group that grows or shrinks while
    one reads page by page may have gone to where one has been, or come once more.
    """
    if source is not None and not who.sees(source):
        return GroupPage(())
    page = await office.list_groups(
        place.store,
        source=source,
        sources=who.sources,
        status=status,
        everything=everything,
        limit=limit,
        after=after,
    )
    opened = await _open(place, who)
    lines = tuple(_shared(line, opened) for line in page.groups)
    return structs.replace(page, groups=lines)


@get("/groups/{name:str}", guards=[needs(Role.READER)])
async def get_group(place: Here, who: Who, name: Name) -> GroupLine:
    """One group."""
    line = await office.line_of(place.store, name, sources=who.sources)
    return _shared(line, await _open(place, who))


@put("/groups/{name:str}/standing", guards=[needs(Role.OPERATOR)])
async def set_standing(
    place: Here, who: Who, name: Name, data: JSONBody[Say]
) -> GroupLine:
    """
    Say how a group stands: known, snoozed until some time, resolved, or muted.

    A resolved group becomes `regressed` by itself when a letter dies of it later.
    """
    if data.until is not None and data.until <= place.clock.now():
        raise ConfigError("a snooze ends in the future: give a later `until`")
    group = await office.get_group(place.store, name, sources=who.sources)
    await office.say(
        place.store,
        place.clock,
        group.fingerprint,
        GroupStatus(data.status),
        By(who.name, data.reason),
        owner=data.owner,
        until=data.until,
        version=data.version,
    )
    line = await office.line_of(place.store, group.fingerprint)
    return _shared(line, await _open(place, who))


async def _open(place: Place, who: Pass) -> int:
    counts = await place.letters.counts()
    return sum(still_open(counts[source]) for source in counts if who.sees(source))


def _shared(line: GroupLine, opened: int) -> GroupLine:
    return structs.replace(line, share=line.open / opened if opened else 0.0)


routes: Final[list[Any]] = [list_groups, get_group, set_standing]
