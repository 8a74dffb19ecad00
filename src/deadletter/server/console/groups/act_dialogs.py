"""Dialogs for acts on groups: what will happen to how many, and what to fill in."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import BackendError, ConfigError, Conflict, NotFound
from deadletter.core.letter import error_name
from deadletter.core.text import cut, many
from deadletter.office.groups import GroupLine
from deadletter.server.acting.group_acts import MOST, StatusChange
from deadletter.server.console import words
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

from . import sentences
from .fix_panel import suggested_versions

Act: TypeAlias = Literal["acknowledge", "relist", "assign", "mine", "snooze", "resolve", "mute"]
DialogAct: TypeAlias = Literal[
    "acknowledge", "relist", "assign", "snooze", "resolve", "mute", "merge", "split", "replay"
]
_NAMED: Final = 5  # groups that a dialog names
_ALIKE: Final = 12  # groups that are offered to be merged
_LONGEST: Final = timedelta(days=366)
_MORNING: Final = 9  # o'clock, UTC
_SPANS: Final = {
    "1h": timedelta(hours=1),
    "4h": timedelta(hours=4),
    "1d": timedelta(days=1),
    "7d": timedelta(days=7),
}
_VERBS: Final[dict[str, str]] = {
    "acknowledge": "Acknowledge",
    "relist": "Reopen",
    "assign": "Assign",
    "snooze": "Snooze",
    "resolve": "Resolve",
    "mute": "Mute",
}
_ABOUT: Final[dict[str, tuple[str, str]]] = {  # for one group, and for several
    "acknowledge": (
        "It becomes ongoing: somebody is working on it.",
        "They become ongoing: somebody is working on them.",
    ),
    "relist": (
        "It becomes ongoing and is listed again.",
        "They become ongoing and are listed again.",
    ),
    "assign": (
        "Its status stays, unless it is new or regressed: then it becomes ongoing.",
        "Their status stays, unless it is new or regressed: then it becomes ongoing.",
    ),
    "snooze": (
        "It is not listed until then, whatever happens. Then it is ongoing.",
        "They are not listed until then, whatever happens. Then they are ongoing.",
    ),
    "resolve": (
        "Its letters do not change: replay or close them.",
        "Their letters do not change: replay or close them.",
    ),
    "mute": (
        "It is not listed until somebody changes that, whatever happens.",
        "They are not listed until somebody changes that, whatever happens.",
    ),
}


class Choice(Struct, frozen=True, kw_only=True):
    """A group that a dialog offers or names."""

    fingerprint: str
    error: str
    text: str
    source: str
    open: int


class Moment(Struct, frozen=True, kw_only=True):
    """One end of a snooze: its value in the form, and in words."""

    value: str
    text: str


class StandingDialog(Struct, frozen=True, kw_only=True):
    """The dialog of an act on how groups stand."""

    act: str
    title: str
    about: str
    url: str
    confirm: str
    back: str
    ids: tuple[str, ...]
    named: tuple[Choice, ...]
    more: int  # chosen groups that are not named
    missing: int  # chosen groups that are gone
    moments: tuple[Moment, ...] = ()
    versions: tuple[str, ...] = ()
    owner: str = ""
    me: str = ""


class MergeDialog(Struct, frozen=True, kw_only=True):
    """The dialog that merges groups: into which one, and which others."""

    title: str
    about: str
    url: str
    confirm: str
    back: str
    into: tuple[Choice, ...]  # the choices; one alone is no choice
    others: tuple[Choice, ...]  # to be ticked
    chosen: tuple[str, ...]  # others that are ticked already
    problem: str = ""


class SplitDialog(Struct, frozen=True, kw_only=True):
    """The dialog that splits letters off a group."""

    title: str
    url: str
    confirm: str
    back: str
    group: Choice


async def standing_dialog(
    context: ServerContext, who: Identity, act: str, names: Sequence[str], *, url: str, back: str
) -> StandingDialog:
    """Return the dialog of an act on these groups, as they are now."""
    found = await _lines(context, who, names)
    if not found:
        raise NotFound("these groups are no longer here: nothing can be done with them")
    verb = _VERBS[act]
    one = found[0]
    what = (
        f"{sentences.error_of(one)} in {cut(one.source, sentences.NAME)}"
        if len(found) == 1
        else many(len(found), "group")
    )
    versions: tuple[str, ...] = ()
    if act == "resolve" and len(found) == 1:
        seen = await context.office.groups.versions(one.fingerprint, sources=who.sources)
        versions = tuple(suggested_versions(seen))
    return StandingDialog(
        act=act,
        title=f"{verb} {what}",
        about=_ABOUT[act][len(found) > 1],
        url=url,
        confirm=verb if len(found) == 1 else f"{verb} {many(len(found), 'group')}",
        back=back,
        ids=tuple(line.fingerprint for line in found),
        named=tuple(map(_choice, found[:_NAMED])) if len(found) > 1 else (),
        more=max(len(found) - _NAMED, 0),
        missing=len(dict.fromkeys(names)) - len(found),
        moments=_moments(context.clock.now()) if act == "snooze" else (),
        versions=versions,
        owner=(one.owner or "") if len(found) == 1 else "",
        me=who.name,
    )


async def merge_dialog(
    context: ServerContext, who: Identity, names: Sequence[str], *, url: str, back: str
) -> MergeDialog:
    """Return the dialog that merges the chosen groups, or others into the only one chosen."""
    found = await _lines(context, who, names)
    if not found:
        raise NotFound("these groups are no longer here: nothing can be done with them")
    found.sort(key=lambda line: -line.open)
    about = (
        "Its letters move, and new ones follow. It can be undone, as long as it is the last"
        " merge of these groups."
    )
    if len(found) > 1:
        problem = ""
        if len({line.source for line in found}) > 1:
            problem = "These groups are of several mailboxes: only groups of one can be merged."
        return MergeDialog(
            title=f"Merge {many(len(found), 'group')} into one",
            about=about,
            url=url,
            confirm="" if problem else f"Merge {many(len(found), 'group')}",
            back=back,
            into=tuple(map(_choice, found)),
            others=(),
            chosen=tuple(line.fingerprint for line in found),
            problem=problem,
        )
    (line,) = found
    alike = await _alike(context, who, line)
    return MergeDialog(
        title=f"Merge others into {sentences.error_of(line)}",
        about=about,
        url=url,
        confirm="Merge into this group",
        back=back,
        into=(_choice(line),),
        others=tuple(map(_choice, alike)),
        chosen=(),
    )


async def split_dialog(
    context: ServerContext, who: Identity, name: str, *, url: str, back: str
) -> SplitDialog:
    """Return the dialog that splits letters off a group."""
    line = await context.office.groups.get(name, sources=who.sources)
    return SplitDialog(
        title=f"Split letters off {sentences.error_of(line)}",
        url=url,
        confirm="Split them off",
        back=back,
        group=_choice(line),
    )


def change_of(
    act: Act, now: datetime, *, span: str, until: str, version: str, reason: str
) -> StatusChange:
    """Return the change of standing that a form asks for."""
    match act:
        case "snooze":
            end = end_of_snooze(span, until, now)
            return StatusChange(status="snoozed", until=end, reason=reason)
        case "resolve":
            return StatusChange(status="resolved", version=version.strip(), reason=reason)
        case "mute":
            return StatusChange(status="muted", reason=reason)
    return StatusChange(status="ongoing", reason=reason)


def end_of_snooze(span: str, until: str, now: datetime) -> datetime:
    """Return when a snooze ends; a given time counts. Raises ConfigError if there is none."""
    if not until.strip() and span in _SPANS:
        return now + _SPANS[span]
    if not until.strip() and span == "morning":
        return next_morning(now)
    try:
        end = datetime.fromisoformat(until.strip())
    except ValueError:
        raise ConfigError(
            "choose how long to snooze, or give its end as a date and time such as"
            f" {now + timedelta(days=1):%Y-%m-%dT%H:%M} (UTC)"
        ) from None
    end = end.replace(tzinfo=UTC) if end.tzinfo is None else end
    if not now < end <= now + _LONGEST:
        raise ConfigError(f"a snooze ends within a year from now, got {words.exact(end)}")
    return end


def next_morning(now: datetime) -> datetime:
    """Return the next nine o'clock, in UTC."""
    morning = now.astimezone(UTC).replace(hour=_MORNING, minute=0, second=0, microsecond=0)
    return morning if morning > now else morning + timedelta(days=1)


def back_to(names: Sequence[str]) -> str:
    """Return the page of the groups of an act: the group, or the list."""
    return path_to("groups", names[0]) if len(names) == 1 else "/groups"


async def _lines(context: ServerContext, who: Identity, names: Sequence[str]) -> list[GroupLine]:
    distinct = list(dict.fromkeys(names))
    if not distinct:
        raise ConfigError("choose at least one group")
    if len(distinct) > MOST:
        raise ConfigError(f"choose at most {MOST} groups at once, got {len(distinct):,}")
    found = await asyncio.gather(
        *(context.office.groups.get(name, sources=who.sources) for name in distinct),
        return_exceptions=True,
    )
    lines = {}
    for one in found:
        if isinstance(one, GroupLine):
            lines[one.fingerprint] = one
        elif isinstance(one, BackendError) or not isinstance(one, NotFound | Conflict):
            raise one
    return list(lines.values())


async def _alike(context: ServerContext, who: Identity, line: GroupLine) -> list[GroupLine]:
    """Return groups of the mailbox with the same error, or of the same place."""
    found: dict[str, GroupLine] = {}
    for text in (error_name(line.error_type), line.frame.partition("#")[0]):
        if text:
            page = await context.office.groups.list(
                source=line.source,
                sources=who.sources,
                everything=True,
                text=text[:200],
                limit=_ALIKE + 1,
            )
            found |= {one.fingerprint: one for one in page.groups if one.total}
    found.pop(line.fingerprint, None)
    return list(found.values())[:_ALIKE]


def _choice(line: GroupLine) -> Choice:
    return Choice(
        fingerprint=line.fingerprint,
        error=sentences.error_of(line),
        text=cut(line.text, 120),
        source=cut(line.source, sentences.NAME),
        open=line.open,
    )


def _moments(now: datetime) -> tuple[Moment, ...]:
    found = [
        Moment(value="1h", text="1 hour"),
        Moment(value="4h", text="4 hours"),
        Moment(value="morning", text=f"until {words.exact(next_morning(now))[:16]} UTC"),
        Moment(value="1d", text="1 day"),
        Moment(value="7d", text="7 days"),
    ]
    return tuple(found)
