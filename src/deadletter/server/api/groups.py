"""Routes of groups: list, show, set the status, merge, split, undo."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import get, post, put
from litestar.params import FromQuery, JSONBody, PathParameter, QueryParameter
from msgspec import Meta, Struct, structs

from deadletter.core.access import Identity, Role
from deadletter.core.letter import GroupStatus, still_open
from deadletter.office.group_versions import GroupVersions
from deadletter.office.groups import (
    GroupCounts,
    GroupLine,
    GroupOrder,
    GroupPage,
    Regrouped,
    RuleLine,
)
from deadletter.office.variants import Variants
from deadletter.server.acting import group_acts
from deadletter.server.acting.group_acts import ShortText, StatusChange
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import After, Limit, Searches

from .letters import Reason

Name: TypeAlias = Annotated[
    str,
    PathParameter(max_length=200, description="The group's fingerprint, or the beginning of it."),
]
Text: TypeAlias = Annotated[
    str,
    QueryParameter(
        max_length=200, description="Only groups whose error, place, code or owner contains this."
    ),
]


class Merge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Groups to merge into one."""

    others: Annotated[list[ShortText], Meta(min_length=1, max_length=100)]
    reason: Reason = ""


class Split(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The letters to split off a group."""

    query: Annotated[str, Meta(min_length=1, max_length=1_000)]
    reason: Reason = ""


class Undo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for undoing a merge or a split."""

    reason: Reason = ""


@get("/groups", guards=[needs(Role.READER)])
async def list_groups(
    *,
    context: Here,
    who: Who,
    source: Annotated[str | None, QueryParameter(max_length=512)] = None,
    status: FromQuery[GroupStatus | None] = None,
    everything: FromQuery[bool] = False,
    text: Text = "",
    order: FromQuery[GroupOrder] = GroupOrder.LARGEST,
    limit: Limit = 100,
    after: After = None,
) -> GroupPage:
    """
    List groups of letters with the same cause, by default those with most open letters first.

    By default, groups with open letters that are neither snoozed nor muted; with
    `status` all groups of that status; with `everything` all groups. If the number of
    letters of a group changes while you read the pages, the group can be missing from
    them or appear twice.
    """
    if source is not None and not who.sees(source):
        return GroupPage(())
    page = await context.office.groups.list(
        source=source,
        sources=who.sources,
        status=status,
        everything=everything,
        text=text,
        order=order,
        limit=limit,
        after=after,
    )
    opened = await _open(context, who)
    lines = tuple(_shared(line, opened) for line in page.groups)
    return structs.replace(page, groups=lines)


@get("/groups/counts", guards=[needs(Role.READER)])
async def count_groups(context: Here, who: Who) -> GroupCounts:
    """
    Return the number of groups of each status.

    `listed` are those that `GET /groups` shows by default: with open letters, and neither
    snoozed nor muted.
    """
    return await context.office.groups.counts(sources=who.sources)


@get("/groups/{name:str}", guards=[needs(Role.READER)])
async def get_group(context: Here, who: Who, name: Name) -> GroupLine:
    """Return one group."""
    line = await context.office.groups.get(name, sources=who.sources)
    return _shared(line, await _open(context, who))


@get("/groups/{name:str}/variants", guards=[needs(Role.READER)])
async def get_variants(context: Here, who: Who, searching: Searches, name: Name) -> Variants:
    """
    Return what the letters of a group have in common, and where they differ.

    The newest letters are compared, `looked_at` of `letters`. Values that nearly all of
    them share, and that are rare in other groups, come first. Secrets are masked.
    """
    return await searching.look(context.office.groups.variants(name, sources=who.sources))


@get("/groups/{name:str}/versions", guards=[needs(Role.READER)])
async def get_group_versions(context: Here, who: Who, name: Name) -> GroupVersions:
    """
    Return the versions of the application in which messages died of a group, newest first.

    `newer` are versions that its mailbox has seen and in which no message died of it. If there
    are any, or the group was resolved in a version, `before_fix` is a search for the open
    letters of older versions. Versions are known from deaths: one in which nothing has died yet
    is not listed. An office in MongoDB does not count deaths by version.
    """
    return await context.office.groups.versions(name, sources=who.sources)


@put("/groups/{name:str}/standing", guards=[needs(Role.OPERATOR)])
async def set_standing(
    context: Here, who: Who, name: Name, data: JSONBody[StatusChange]
) -> GroupLine:
    """
    Set the status of a group: ongoing, snoozed, resolved or muted.

    A resolved group becomes `regressed` when it gets a new letter.
    """
    line = await group_acts.set_standing(context, who, name, data)
    return _shared(line, await _open(context, who))


@get("/group-rules", guards=[needs(Role.READER)])
async def list_group_rules(context: Here, who: Who) -> Sequence[RuleLine]:
    """List merges and splits that apply to new letters, by group."""
    return await context.office.groups.rules(sources=who.sources)


@post("/groups/{name:str}/merge", guards=[needs(Role.OPERATOR)], status_code=200)
async def merge_groups(context: Here, who: Who, name: Name, data: JSONBody[Merge]) -> Regrouped:
    """
    Merge other groups into this one. New letters follow.

    Only groups of one mailbox can be merged. It can be undone.
    """
    return await group_acts.merge_groups(context, who, name, data.others, reason=data.reason)


@post("/groups/{name:str}/split", guards=[needs(Role.OPERATOR)], status_code=200)
async def split_group(context: Here, who: Who, name: Name, data: JSONBody[Split]) -> Regrouped:
    """
    Move the letters of this group that a search finds to a group of their own.

    New letters follow. It can be undone.
    """
    return await group_acts.split_group(context, who, name, data.query, reason=data.reason)


@post("/groups/{name:str}/undo", guards=[needs(Role.OPERATOR)], status_code=200)
async def undo_grouping(context: Here, who: Who, name: Name, data: JSONBody[Undo]) -> Regrouped:
    """Undo the last merge or split of this group and move its letters back."""
    return await group_acts.undo_grouping(context, who, name, reason=data.reason)


async def _open(context: ServerContext, who: Identity) -> int:
    counts = await context.office.letters.counts()
    return sum(still_open(counts[source]) for source in counts if who.sees(source))


def _shared(line: GroupLine, opened: int) -> GroupLine:
    return structs.replace(line, share=line.open / opened if opened else 0.0)


routes: Final[list[Any]] = [
    *(list_groups, count_groups, get_group, get_variants, get_group_versions),
    *(set_standing, list_group_rules),
    *(merge_groups, split_group, undo_grouping),
]
