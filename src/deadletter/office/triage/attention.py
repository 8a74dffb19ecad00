"""What needs somebody: one ranked list, made of everything that an office knows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.alerts import Alerts
from deadletter.core.brake import WindowState
from deadletter.core.campaign import Campaign, Unsettled, size_of
from deadletter.core.letter import Group, GroupStatus, LetterHead, State, error_name
from deadletter.core.text import clean, cut, many, span
from deadletter.office.mailboxes import Outage, unworked
from deadletter.office.selection import PLAN_DAYS
from deadletter.ports import QueueInfo

from .facets import term_text

MOST: Final = 50  # needs
EXPIRES_SOON: Final = timedelta(days=1)
_LONGEST: Final = 200  # characters of a text


class NeedKind(StrEnum):
    """The kinds of needs, the most urgent first."""

    REGRESSED = "regressed"  # a resolved group fails again
    HALTED = "halted"  # a replay stopped by itself
    BRAKE = "brake"  # workers of a mailbox stopped receiving
    LOOP = "loop"  # the server or one of its loops has a problem
    INTAKE = "intake"  # letters of another system are not taken in
    APPROVAL = "approval"  # a replay waits for somebody else to agree
    NEW = "new"  # a group that nobody has looked at
    GROWING = "growing"  # many deaths in a short time
    SUSPECTS = "suspects"  # messages that lost workers held
    QUARANTINED = "quarantined"  # letters that were replayed too often
    UNREVIEWED = "unreviewed"  # letters that nobody has looked at for too long
    EXPIRING = "expiring"  # a plan that is cancelled soon
    UNSETTLED = "unsettled"  # replayed letters that wait for an outcome
    UNWORKED = "unworked"  # messages that no worker takes


_RANK: Final = {kind: rank for rank, kind in enumerate(NeedKind)}


class Need(Struct, frozen=True, kw_only=True):
    """
    One thing that needs somebody, in a sentence.

    `target` names what it is about: a group, replay or mailbox by its name, or letters by a
    search; `is_query` says which.
    """

    kind: NeedKind
    text: str
    target: str
    is_query: bool = False
    source: str = ""  # the mailbox it is about
    since: datetime | None = None
    count: int = 0  # letters, messages or deaths


class Problem(Struct, frozen=True):
    """A loop or part of the server, or an intake by its name, and its problem."""

    name: str
    text: str
    since: datetime | None = None
    is_intake: bool = False


class Scene(Struct, frozen=True, kw_only=True):
    """Everything that needs are made of, at one moment."""

    groups: Sequence[Group] = ()
    grown: Mapping[str, int] = {}  # recent deaths by group
    counts: Mapping[str, Mapping[State, int]] = {}  # letters by source and state
    unreviewed: Sequence[LetterHead] = ()  # letters that were left alone for too long
    all_unreviewed: bool = True  # there are no more of these
    unsettled: Sequence[Unsettled] = ()
    halted: Mapping[str, str] = {}  # why replays stopped by themselves, by id
    paused: Sequence[Campaign] = ()
    planned: Sequence[Campaign] = ()
    approvals: Sequence[Campaign] = ()  # planned replays that wait for somebody else to agree
    outages: Sequence[Outage] = ()
    queues: Sequence[QueueInfo] = ()
    problems: Sequence[Problem] = ()


def rank_needs(scene: Scene, now: datetime, alerts: Alerts | None = None) -> list[Need]:
    """Return what needs somebody, the most urgent first; `alerts` has the limits."""
    limits = alerts or Alerts()
    found = [
        *_of_groups(scene, limits),
        *_of_replays(scene, now),
        *_of_mailboxes(scene, now),
        *(_problem(one) for one in scene.problems),
        *_quarantined(scene.counts),
        *_unreviewed(scene, now),
        *_unsettled(scene.unsettled, now, limits),
    ]
    # Of one kind, the largest first; of equal ones, the oldest.
    found.sort(key=lambda one: (_RANK[one.kind], -one.count, _age(one, now), one.target))
    return found[:MOST]


def _age(need: Need, now: datetime) -> float:
    return 0.0 if need.since is None else -(now - need.since).total_seconds()


def _of_groups(scene: Scene, limits: Alerts) -> Iterator[Need]:
    for group in scene.groups:
        status, since = group.standing.status, group.standing.since
        grown = scene.grown.get(group.fingerprint, 0)
        what = f"{_error(group)} in {_name(group.source)}"
        if status is GroupStatus.REGRESSED and group.open:
            version = f" in {_name(group.standing.version)}" if group.standing.version else ""
            text = f"{what} was resolved{version} and fails again: {_open(group.open)}"
            yield _about(group, NeedKind.REGRESSED, text, since, group.open)
        elif status is GroupStatus.NEW and group.open:
            text = f"{what} is new: {_open(group.open)}"
            yield _about(group, NeedKind.NEW, text, group.first_seen, group.open)
        if limits.growing and grown >= limits.growing and status is not GroupStatus.MUTED:
            within = span(limits.growing_within)
            text = f"{what} grows: {many(grown, 'death')} within {within}"
            yield _about(group, NeedKind.GROWING, text, group.first_seen, grown)


def _about(group: Group, kind: NeedKind, text: str, since: datetime | None, count: int) -> Need:
    return Need(
        kind=kind,
        text=text,
        target=group.fingerprint,
        source=group.source,
        since=since,
        count=count,
    )


def _of_replays(scene: Scene, now: datetime) -> Iterator[Need]:
    for one in scene.paused:
        why = scene.halted.get(one.id)
        if why is not None:
            text = f"The replay of {_query(one)} {_text(why)}"
            yield Need(kind=NeedKind.HALTED, text=text, target=one.id, since=one.created_at)
    waiting = {one.id for one in scene.approvals}
    for one in scene.approvals:
        letters = size_of(one)
        reason = f": {_text(one.reason)}" if one.reason else ""
        text = f"{_name(one.actor)} wants to send {many(letters, 'letter')} back{reason}"
        yield Need(
            kind=NeedKind.APPROVAL, text=text, target=one.id, since=one.created_at, count=letters
        )
    for one in scene.planned:
        left = one.created_at + timedelta(days=PLAN_DAYS) - now
        if one.id not in waiting and timedelta() < left <= EXPIRES_SOON:
            text = (
                f"The replay of {_query(one)} that {_name(one.actor)} planned is cancelled"
                f" in {span(left.total_seconds())} unless somebody starts it"
            )
            letters = size_of(one)
            yield Need(
                kind=NeedKind.EXPIRING,
                text=text,
                target=one.id,
                since=one.created_at,
                count=letters,
            )


def _of_mailboxes(scene: Scene, now: datetime) -> Iterator[Need]:
    for outage in scene.outages:
        window = outage.window
        if outage.state is WindowState.OPEN and window.release is None:
            lasted = span((now - window.opened_at).total_seconds())
            text = (
                f"{_name(window.mailbox)} has been stopped for {lasted}"
                f" ({window.kind}): {_text(window.text)}"
            )
            yield Need(
                kind=NeedKind.BRAKE,
                text=text,
                target=window.mailbox,
                source=window.mailbox,
                since=window.opened_at,
                count=window.held,
            )
    for queue in scene.queues:
        name = queue.options.name
        if queue.suspects:
            are = (
                "suspect of a lost worker runs"
                if queue.suspects == 1
                else "suspects of lost workers run"
            )
            text = f"{queue.suspects:,} {are} alone in {_name(name)}: see why the worker died"
            yield Need(
                kind=NeedKind.SUSPECTS, text=text, target=name, source=name, count=queue.suspects
            )
    for queue in unworked(scene.queues, now):
        yield Need(
            kind=NeedKind.UNWORKED,
            text=unworked_text(queue, now),
            target=queue.options.name,
            source=queue.options.name,
            since=queue.oldest_at,
            count=queue.ready,
        )


def unworked_text(queue: QueueInfo, now: datetime) -> str:
    """Return a sentence about a mailbox that seems to have no worker."""
    ready = f"{queue.ready:,} {'message is' if queue.ready == 1 else 'messages are'}"
    text = f"Is a worker running for {_name(queue.options.name)}? {ready} ready, and no worker"
    text += " holds any"
    if queue.oldest_at is None:
        return text
    return f"{text}; the oldest was sent {span((now - queue.oldest_at).total_seconds())} ago"


def _problem(problem: Problem) -> Need:
    text = f"{_name(problem.name)}: {_text(problem.text)}"
    if problem.is_intake:
        text = f"The intake {text}"
    kind = NeedKind.INTAKE if problem.is_intake else NeedKind.LOOP
    return Need(kind=kind, text=text, target=problem.name, since=problem.since)


def _quarantined(counts: Mapping[str, Mapping[State, int]]) -> Iterator[Need]:
    for source, states in counts.items():
        if letters := states.get(State.QUARANTINED, 0):
            they = "letter was" if letters == 1 else "letters were"
            text = (
                f"{letters:,} {they} replayed too often in {_name(source)}, and wait for a decision"
            )
            yield _of_source(NeedKind.QUARANTINED, text, source, "is:quarantined", letters)


def _unreviewed(scene: Scene, now: datetime) -> Iterator[Need]:
    counts = Counter(head.source for head in scene.unreviewed)
    oldest: dict[str, datetime] = {}
    for head in scene.unreviewed:
        oldest[head.source] = min(head.dead_at, oldest.get(head.source, head.dead_at))
    for source, letters in counts.items():
        least = "" if scene.all_unreviewed else "At least "
        waited = span((now - oldest[source]).total_seconds())
        have = "has" if letters == 1 else "have"
        text = f"{least}{many(letters, 'letter')} of {_name(source)} {have} waited for a review"
        text += f", the oldest for {waited}"
        yield _of_source(NeedKind.UNREVIEWED, text, source, "is:pending", letters, oldest[source])


def _unsettled(waits: Iterable[Unsettled], now: datetime, limits: Alerts) -> Iterator[Need]:
    for one in waits:
        if not limits.unsettled or one.since is None:
            continue
        waited = (now - one.since).total_seconds()
        if waited >= limits.unsettled:
            wait = "letter waits" if one.letters == 1 else "letters wait"
            text = f"{one.letters:,} {wait} for the outcome of a replay in {_name(one.source)}"
            text += f", the oldest for {span(waited)}"
            query = f"is:{State.REPLAYING}"
            yield _of_source(NeedKind.UNSETTLED, text, one.source, query, one.letters, one.since)


def _of_source(  # noqa: PLR0917 -- the fields of a need
    kind: NeedKind, text: str, source: str, query: str, count: int, since: datetime | None = None
) -> Need:
    from_source = term_text("source", source)
    return Need(
        kind=kind,
        text=text,
        target=f"{query} {from_source}".strip(),
        is_query=True,
        source=source,
        since=since,
        count=count,
    )


def _error(group: Group) -> str:
    name = _name(error_name(group.error_type)) or "A failure"
    return f"{name} {_text(group.text)}".strip() if group.text else name


def _query(campaign: Campaign) -> str:
    return _text(campaign.query) or "all letters"


def _open(letters: int) -> str:
    return f"{letters:,} open"


def _name(text: str) -> str:
    return clean(cut(text, _LONGEST))


def _text(text: str) -> str:
    return clean(cut(text.strip(), _LONGEST))
