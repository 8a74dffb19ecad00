"""Is it fixed? What versions, time and replays show, in sentences, and never more than that."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from deadletter.core.letter import Group, GroupStatus, State
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.query.fields import literal
from deadletter.core.query.parse import show
from deadletter.core.text import cut, many, span
from deadletter.office.group_versions import GroupVersions, VersionLine
from deadletter.office.letters_protocol import LetterCount
from deadletter.office.workers import RunningVersion
from deadletter.server.console import words
from deadletter.server.console.pages import path_to

from .sentences import NAME

_OPEN: Final = Term("is", Op.IS, ("open",))
_QUIET: Final = 3_600.0  # seconds without a death that are worth a sentence


class FixPanel(Struct, frozen=True, kw_only=True):
    """
    What is known about a fix, and the letters that could be sent back.

    `look` is quiet if nothing died in the version that may have the fix, still if something
    did, and unknown otherwise.
    """

    look: Literal["quiet", "still", "unknown"]
    sentence: str
    facts: tuple[str, ...]
    letters: str = ""  # how many letters a replay would have, as the end of a button
    plan: str = ""  # the path of its plan; empty if there is nothing to replay
    query: str = ""
    has_all: bool = False  # the plan has all open letters of the group
    is_counted: bool = True  # False: the letters from before are still to be counted


def judge(
    group: Group,
    found: GroupVersions,
    *,
    before: LetterCount | None,
    is_counted: bool,
    now: datetime,
) -> FixPanel:
    """
    Return the panel of a group; `before` counts the open letters of `found.before_fix`.

    Not `is_counted` means that there may be any number of them.
    """
    look, sentence = _verdict(group, found, now)
    facts = [*_runs(group, found, look, now), *_older(group, found, look, now)]
    facts += _facts(group, now)
    if found.uncounted:
        are = "is" if found.uncounted == 1 else "are"
        facts.append(
            f"{many(found.uncounted, 'death')} of it {are} counted without group and version: for"
            " these, the versions of its newest letters are looked at."
        )
    opened = group.open
    whole = show(All((Term("group", Op.IS, (literal(group.fingerprint),)), _OPEN)))
    if found.before_fix and opened and not is_counted:
        return FixPanel(
            look=look,
            sentence=sentence,
            facts=tuple(facts),
            letters="the letters from before",
            plan=path_to("replays", "new", q=found.before_fix),
            query=found.before_fix,
            is_counted=False,
        )
    if before is not None and before.letters:
        query, count, end = found.before_fix, before, " from before"
        if before.is_all and before.letters < opened:
            others = many(opened - before.letters, "other open letter")
            facts.insert(0, f"{others} died in {_name(found.fix)} or later, or name no version.")
    elif look == "quiet" and opened:
        facts.insert(0, "Its open letters name no version: see whether they are from before.")
        query, count, end = whole, LetterCount(opened), ""
    else:
        query, count, end = whole, LetterCount(opened), ""
    letters = words.number(count.letters, at_least=not count.is_all)
    noun = "letter" if count.letters == 1 else "letters"
    return FixPanel(
        look=look,
        sentence=sentence,
        facts=tuple(facts),
        letters=f"{letters} {noun}{end}",
        plan=path_to("replays", "new", q=query) if count.letters else "",
        query=query,
        has_all=count.letters >= opened,
    )


def _verdict(
    group: Group, found: GroupVersions, now: datetime
) -> tuple[Literal["quiet", "still", "unknown"], str]:
    if not found.is_counted:
        return "unknown", "This office does not count deaths by version, so this cannot be told."
    died_in = [line for line in found.versions if line.version]
    if not died_in:
        return "unknown", (
            "Its deaths name no version. Give your application a version, and this tells in"
            " which ones messages die of it."
        )
    if found.fix and found.since_fix:
        newest = died_in[0]
        return "still", (
            f"It still happens: {many(found.since_fix, 'death')} in {_name(found.fix)} or newer,"
            f" the last {words.ago(_last(group, newest), now)} in {_name(newest.version)}."
        )
    fixed = [one for one in found.running if one.has_fix]
    if fixed:
        return "quiet", f"{_spread(fixed[0], found, now)}; nobody has died of this in it."
    if found.fix:
        seen = {one.version: one.first_seen for one in found.newer}
        if found.fix in seen:
            told = f", first seen {words.ago(seen[found.fix], now)}"
            text = f"No message has died of this in {_name(found.fix)}{told}."
            return ("unknown" if found.running else "quiet"), text
        if found.knows_workers:
            return "unknown", (
                f"No message has died of this in {_name(found.fix)} or newer, and no worker of"
                f" {_name(group.source)} was heard of that runs it."
            )
        return "unknown", (
            f"No message has died of this in {_name(found.fix)} or newer. Whether it runs is"
            " not known here yet: nothing else has died in it either."
        )
    newest = died_in[0]
    died = {line.version for line in died_in}
    if others := [one for one in found.running if one.version and one.version not in died]:
        return "unknown", (
            f"{_spread(others[0], found, now)}; nobody has died of this in it. Whether it is newer"
            f" than {_name(newest.version)} is not known."
        )
    return "still", (
        f"No newer version than {_name(newest.version)} was seen at {_name(group.source)}, and"
        f" messages die of this in it: {many(newest.deaths, 'death')}, the last"
        f" {words.ago(_last(group, newest), now)}."
    )


def _spread(one: RunningVersion, found: GroupVersions, now: datetime) -> str:
    """Return on how many workers a version runs: `1.8.1 runs on 3 of 4 workers since 13:20`."""
    workers = f"{one.workers:,} of {many(found.workers, 'worker')}"
    if one.workers == found.workers:
        workers = "the only worker" if one.workers == 1 else f"all {one.workers:,} workers"
    since = f"{one.since:%H:%M} UTC"
    if one.since.date() != now.date():
        since = f"{one.since.day} {one.since:%b}, {since}"
    return f"{_name(one.version)} runs on {workers} since {since}"


def _runs(group: Group, found: GroupVersions, look: str, now: datetime) -> list[str]:
    """Return which other versions its workers run, and whether any worker was heard of."""
    if not found.knows_workers:
        return []
    if not found.workers:
        name = _name(group.source)
        return [f"No worker of {name} was heard of lately: letters sent back wait for one."]
    if look == "still":
        return []
    facts, fixed = [], [one for one in found.running if one.has_fix]
    facts += [f"{_spread(one, found, now)}, and nobody has died of it there." for one in fixed[1:]]
    died = {line.version for line in found.versions if line.version}
    for one in found.running:
        if one.version in died:
            runs = "worker still runs" if one.workers == 1 else "workers still run"
            on = f" on {cut(', '.join(one.hosts), NAME)}" if any(one.hosts) else ""
            facts.append(
                f"{one.workers:,} {runs} {_name(one.version)}{on}, in which messages die of it."
            )
    return facts


def _facts(group: Group, now: datetime) -> list[str]:
    facts = []
    quiet = (now - group.last_seen).total_seconds()
    if quiet >= _QUIET:
        facts.append(f"No death of it for {span(quiet)}.")
    if handled := group.counts.get(State.REPLAYED, 0):
        were = "was" if handled == 1 else "were"
        facts.append(f"{many(handled, 'letter')} of it {were} sent back and handled.")
    if waiting := group.counts.get(State.REPLAYING, 0):
        wait = "letter waits" if waiting == 1 else "letters wait"
        facts.append(f"{waiting:,} {wait} for the outcome of a replay.")
    if group.standing.status is GroupStatus.REGRESSED and group.standing.since is not None:
        facts.append(f"It came back {words.ago(group.standing.since, now)}.")
    return facts


def _older(group: Group, found: GroupVersions, look: str, now: datetime) -> list[str]:
    """Return whether an older version still runs beside the one that may have the fix."""
    seen = {one.version: one.first_seen for one in found.newer}
    since = seen.get(found.fix)
    if look != "quiet" or found.running or since is None or group.last_seen <= since:
        return []
    older = _name(next(line.version for line in found.versions if line.version))
    ago = words.ago(group.last_seen, now)
    return [f"An older version still ran then: a message died of it in {older} {ago}."]


def _last(group: Group, line: VersionLine) -> datetime:
    """Return when the last death of a version was, as exactly as that is known."""
    return max(line.last, group.last_seen) if group.last_seen >= line.last else line.last


def suggested_versions(found: GroupVersions) -> Sequence[str]:
    """Return versions that a group may be resolved in, the most likely first."""
    names = [one.version for one in found.newer] + [one.version for one in found.versions]
    names = [found.fix, *names] if found.fix and not found.since_fix else names
    return [name for name in dict.fromkeys(names) if name]


def _name(version: str) -> str:
    return cut(version, NAME)
