"""
Which alerts there are, as values: pure functions of what the office shows.

An alert says what, where and how much, and never what is in a message: it goes
through chat rooms and mail servers of others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.counts import many

from .alerts import Alerts
from .brake_window import BrakeWindow, WindowState, merged
from .group_limit import is_overflow
from .grouping import HIDDEN
from .letter import Group, GroupStatus, LetterHead
from .plain import cut, plain_line
from .unsettled import Unsettled

MEMORY: Final = timedelta(days=30)
"""How long it is remembered that people were told; older news is no news."""

_LONGEST: Final = 200  # characters of a name


class AlertKind(StrEnum):
    """What there is to tell."""

    NEW_GROUP = "new-group"
    REGRESSED = "regressed-group"
    GROWING = "growing-group"
    OVERFLOW = "overflow-group"
    UNREVIEWED = "unreviewed-letters"
    HELD_BACK = "mailbox-held-back"
    UNSETTLED = "unsettled-letters"


class Alert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something people are told, once: `id` is the same whoever tells."""

    id: str
    kind: AlertKind
    text: str
    source: str
    count: int
    first_seen: datetime
    last_seen: datetime
    group: str = ""  # fingerprint
    error_type: str = ""
    round: int = 0  # how often it could have been told before


def about_groups(
    groups: Sequence[Group], grown: Mapping[str, int], alerts: Alerts, now: datetime
) -> list[Alert]:
    """What there is to tell of groups; `grown` are deaths within the window."""
    found: list[Alert] = []
    for group in _kinds_in_turn(groups):
        if group.standing.status in HIDDEN:
            continue
        if alerts.new_groups and (news := _news(group, now)) is not None:
            found.append(news)
        deaths = grown.get(group.fingerprint, 0)
        if alerts.growing and deaths >= alerts.growing:
            found.append(_growing(group, deaths, alerts, now))
    return found


def about_outages(windows: Iterable[BrakeWindow], now: datetime) -> list[Alert]:
    """What there is to tell of mailboxes that are held back: each opening once."""
    return [
        Alert(
            id=f"{AlertKind.HELD_BACK}:{one.id}",
            kind=AlertKind.HELD_BACK,
            text=f"{_shown(one.mailbox)} is held back by the brake ({one.kind}): "
            f"{plain_line(cut(one.text, 2 * _LONGEST))}",
            source=one.mailbox,
            count=one.held,
            first_seen=one.opened_at,
            last_seen=one.seen_at,
        )
        for one in merged(windows)
        if one.state(now) is WindowState.OPEN
    ]


def about_waiting(
    heads: Sequence[LetterHead],
    oldest: Mapping[str, datetime],
    alerts: Alerts,
    now: datetime,
    *,
    is_all: bool,
) -> list[Alert]:
    """
    What there is to tell of letters that nobody looked at for too long.

    `heads` are some of them, of sources whose `oldest` is known; or all of them.
    """
    counts = Counter(head.source for head in heads)
    last = {source: begin for source, begin in oldest.items() if source in counts}
    for head in heads:
        if head.source in last:
            last[head.source] = max(last[head.source], head.dead_at)
    return [
        Alert(
            id=f"{AlertKind.UNREVIEWED}:{source}",
            kind=AlertKind.UNREVIEWED,
            text=f"{'' if is_all else 'At least '}{_letters(counts[source])} of "
            f"{_shown(source)} waited for more than {_long(alerts.unreviewed)} "
            "and nobody has looked",
            source=source,
            count=counts[source],
            first_seen=oldest[source],
            last_seen=last[source],
            round=_round(oldest[source], alerts, now),
        )
        for source in last
    ]


def about_unsettled(
    waits: Sequence[Unsettled], alerts: Alerts, now: datetime
) -> list[Alert]:
    """What there is to tell of letters that wait too long for a replay's outcome."""
    begin = now - timedelta(seconds=alerts.unsettled)
    return [
        Alert(
            id=f"{AlertKind.UNSETTLED}:{one.source}",
            kind=AlertKind.UNSETTLED,
            text=f"{_letters(one.letters)} of {_shown(one.source)} sent back without an"
            f" outcome, for more than {_long(alerts.unsettled)}: is a worker running?",
            source=one.source,
            count=one.letters,
            first_seen=one.since,
            last_seen=now,
            round=_round(one.since, alerts, now),
        )
        for one in waits
        if one.since is not None and one.since < begin
    ]


def _kinds_in_turn(groups: Sequence[Group]) -> list[Group]:
    """One group of each source, error and frame first, then a second of each, …"""
    turns: Counter[tuple[str, str, str]] = Counter()
    placed: list[tuple[int, Group]] = []
    for group in groups:
        kind = group.source, group.error_type, group.frame
        placed.append((turns[kind], group))
        turns[kind] += 1
    return [group for _, group in sorted(placed, key=lambda one: one[0])]


def _overflow(group: Group, now: datetime) -> Alert | None:
    if group.last_seen <= now - MEMORY:
        return None
    text = (
        f"{_what(group)} has too many different error texts: {_letters(group.total)} "
        "of it are in one overflow group"
    )
    day = f"{group.last_seen:%Y%m%d}"
    return _of(group, AlertKind.OVERFLOW, text, group.total, said=day)


def _news(group: Group, now: datetime) -> Alert | None:
    if is_overflow(group.fingerprint):
        return _overflow(group, now)
    status, since = group.standing.status, group.standing.since
    if status is GroupStatus.REGRESSED and since is not None:
        if since <= now - MEMORY:
            return None
        said = f"{since:%Y%m%dT%H%M%S}"
        text = f"{_what(group)} was resolved, and happens again"
        return _of(group, AlertKind.REGRESSED, text, group.total, said=said)
    if status is GroupStatus.NEW and group.first_seen > now - MEMORY:
        text = f"{_what(group)} is new: {_deaths(group.total)}"
        return _of(group, AlertKind.NEW_GROUP, text, group.total)
    return None


def _growing(group: Group, deaths: int, alerts: Alerts, now: datetime) -> Alert:
    within = _long(alerts.growing_within)
    text = f"{_what(group)} grows: {_deaths(deaths)} within {within}"
    number = _round(group.first_seen, alerts, now)
    return _of(group, AlertKind.GROWING, text, deaths, number=number)


def _of(
    group: Group,
    kind: AlertKind,
    text: str,
    count: int,
    *,
    said: str = "",
    number: int = 0,
) -> Alert:
    return Alert(
        id=":".join(filter(None, (kind, group.fingerprint, said))),
        kind=kind,
        text=text,
        source=group.source,
        count=count,
        first_seen=group.first_seen,
        last_seen=group.last_seen,
        group=group.fingerprint,
        error_type=_shown(group.error_type),
        round=number,
    )


def _round(begin: datetime, alerts: Alerts, now: datetime) -> int:
    """Grows by one every so often, while it goes on: then it may be told again."""
    seconds = max(0.0, (now - begin).total_seconds())
    return int(seconds / max(alerts.again, 60.0))


def _what(group: Group) -> str:
    return f"{_shown(group.error_type) or 'A failure'} in {_shown(group.source)}"


def _shown(name: str) -> str:
    return plain_line(cut(name, _LONGEST))


def _letters(count: int) -> str:
    return many(count, "letter")


def _deaths(count: int) -> str:
    return f"{count:,} {'death' if count == 1 else 'deaths'}"


def _long(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}{'' if seconds == size else 's'}"
    return f"{seconds:g} seconds"
