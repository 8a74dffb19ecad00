"""The report of a shift: what came, what was done by whom, what is open, and what waits."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import Campaign, CampaignState, Outcome, handled, unsent, unsettled
from deadletter.core.letter import AuditEntry, GroupStatus
from deadletter.core.text import clean, cut, many
from deadletter.office.groups import GroupLine
from deadletter.office.letters_protocol import LetterCount

from .attention import Need

LONGEST: Final = 5_000  # acts that are read
_LISTED: Final = 20  # groups and replays of one list


class Deed(Struct, frozen=True, kw_only=True):
    """Acts of one person, of the same kind: their number, and that of their targets."""

    actor: str
    action: str  # as in the audit; of a move, the state that letters moved to
    acts: int
    targets: int


class ReplayLine(Struct, frozen=True, kw_only=True):
    """A replay of the shift, in numbers of letters."""

    id: str
    query: str
    actor: str
    state: CampaignState
    handled: int
    failed: int
    waiting: int  # on their way, without an outcome
    unsent: int


class ShiftReport(Struct, frozen=True, kw_only=True):
    """What happened since a time, and how things are now."""

    since: datetime
    until: datetime
    died: LetterCount  # letters that died since, as far as they still exist
    new: tuple[GroupLine, ...]  # groups first seen since
    regressed: tuple[GroupLine, ...]  # groups that failed again since
    deeds: tuple[Deed, ...]
    all_deeds: bool  # there are no older acts of the shift that were not read
    replays: tuple[ReplayLine, ...]
    open: int  # letters
    needs: tuple[Need, ...]


def count_deeds(entries: Iterable[AuditEntry]) -> tuple[Deed, ...]:
    """Return who did what and how often, the busiest first."""
    acts: Counter[tuple[str, str]] = Counter()
    targets: dict[tuple[str, str], set[str]] = {}
    for entry in entries:
        deed = entry.actor, _action(entry)
        acts[deed] += 1
        targets.setdefault(deed, set()).add(entry.target)
    return tuple(
        Deed(actor=actor, action=action, acts=n, targets=len(targets[actor, action]))
        for (actor, action), n in sorted(acts.items(), key=lambda one: (-one[1], one[0]))
    )


def _action(entry: AuditEntry) -> str:
    if entry.action in {"move", "group"}:
        _, to, target = entry.detail.partition(" to ")
        status = target.split(",")[0].split(" ")[0]
        return f"{entry.action} to {status}" if to and status else entry.action
    return entry.action


def replay_line(campaign: Campaign) -> ReplayLine:
    """Return a replay in numbers of letters."""
    return ReplayLine(
        id=campaign.id,
        query=campaign.query,
        actor=campaign.actor,
        state=campaign.state,
        handled=handled(campaign),
        failed=campaign.counts.get(Outcome.FAILED, 0),
        waiting=unsettled(campaign),
        unsent=unsent(campaign),
    )


def came(lines: Sequence[GroupLine], since: datetime) -> tuple[list[GroupLine], list[GroupLine]]:
    """Return the groups that are new since a time, and those that regressed since."""
    new = [one for one in lines if one.first_seen >= since]
    again = [
        one
        for one in lines
        if one.status is GroupStatus.REGRESSED and one.since is not None and one.since >= since
    ]
    return new[:_LISTED], again[:_LISTED]


def markdown(report: ShiftReport) -> str:
    """Return a report as Markdown; texts from messages are harmless in it."""
    lines = [
        f"# Dead letters, {_time(report.since)} to {_time(report.until)} UTC",
        "",
        f"{_count(report.died)} died; {many(report.open, 'letter')} open now.",
        *_section("New", (_group(one) for one in report.new)),
        *_section("Regressed", (_group(one) for one in report.regressed)),
        *_section("Done", (_deed(one) for one in report.deeds)),
        *([] if report.all_deeds else ["", f"Only the latest {LONGEST:,} acts were read."]),
        *_section("Replays", (_replay(one) for one in report.replays)),
        *_section("Needs somebody", (f"{one.kind}: {_escaped(one.text)}" for one in report.needs)),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, rows: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *([f"- {row}" for row in rows] or ["- nothing"])]


def _group(line: GroupLine) -> str:
    name = line.error_type.rpartition(".")[2] or "failure"
    owner = f", owner {_escaped(line.owner)}" if line.owner else ""
    text = _escaped(cut(line.text, 120))
    return f"{_escaped(name)} in {_escaped(line.source)}: {text} ({line.open:,} open{owner})"


def _deed(deed: Deed) -> str:
    targets = "" if deed.targets == deed.acts else f" on {many(deed.targets, 'target')}"
    return f"{_escaped(deed.actor)}: {_escaped(deed.action)}, {many(deed.acts, 'time')}{targets}"


def _replay(line: ReplayLine) -> str:
    numbers = (
        (line.handled, "handled"),
        (line.failed, "failed again"),
        (line.waiting, "without an outcome"),
        (line.unsent, "not sent"),
    )
    told = ", ".join(f"{n:,} {what}" for n, what in numbers if n) or "no letters"
    query = _escaped(cut(line.query, 120)) or "all letters"
    return f"{_escaped(line.actor)}: {query} ({line.state}): {told}"


def _count(count: LetterCount) -> str:
    least = "" if count.is_all else "At least "
    return f"{least}{many(count.letters, 'letter')}"


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M}"


_SIGNS: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>()#+!|~&"})


def _escaped(text: str) -> str:
    """Return foreign text on one line, without any meaning in Markdown or HTML."""
    return clean(text).translate(_SIGNS)
