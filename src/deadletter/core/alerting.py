"""
Which alerts there are, as values: pure functions of what the office shows.

An alert says what, where and how much, and never what is in a message: it goes
through chat rooms and mail servers of others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from .alerts import Alerts
from .grouping import HIDDEN
from .letter import Group, GroupStatus, LetterHead, State
from .plain import cut, plain_line
from .query import All, Node, Op, Term, literal, parse, show

MEMORY: Final = timedelta(days=30)
"""How long it is remembered that people were told; older news is no news."""

_LONGEST: Final = 200  # characters of a name
_PENDING: Final = parse(f"is:{State.PENDING}")


class AlertKind(StrEnum):
    """What there is to tell."""

    NEW_GROUP = "new-group"
    REGRESSED = "regressed-group"
    GROWING = "growing-group"
    UNREVIEWED = "unreviewed-letters"


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
    link: str = ""
    round: int = 0  # how often it could have been told before


def about_groups(
    groups: Sequence[Group], grown: Mapping[str, int], alerts: Alerts, now: datetime
) -> list[Alert]:
    """What there is to tell of groups; `grown` are deaths within the window."""
    found: list[Alert] = []
    for group in groups:
        if group.standing.status in HIDDEN:
            continue
        if alerts.new_groups and (news := _news(group, alerts, now)) is not None:
            found.append(news)
        deaths = grown.get(group.fingerprint, 0)
        if alerts.growing and deaths >= alerts.growing:
            found.append(_growing(group, deaths, alerts, now))
    return found


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
            link=_link(alerts, "letters?q=", show(_pending(source))),
            round=_round(oldest[source], alerts, now),
        )
        for source in last
    ]


def _news(group: Group, alerts: Alerts, now: datetime) -> Alert | None:
    status, since = group.standing.status, group.standing.since
    if status is GroupStatus.REGRESSED and since is not None:
        if since <= now - MEMORY:
            return None
        said = f"{since:%Y%m%dT%H%M%S}"
        text = f"{_what(group)} was resolved, and happens again"
        return _of(group, AlertKind.REGRESSED, text, alerts, group.total, said=said)
    if status is GroupStatus.NEW and group.first_seen > now - MEMORY:
        text = f"{_what(group)} is new: {_letters(group.total)}"
        return _of(group, AlertKind.NEW_GROUP, text, alerts, group.total)
    return None


def _growing(group: Group, deaths: int, alerts: Alerts, now: datetime) -> Alert:
    within = _long(alerts.growing_within)
    text = f"{_what(group)} grows: {_letters(deaths)} within {within}"
    number = _round(group.first_seen, alerts, now)
    return _of(group, AlertKind.GROWING, text, alerts, deaths, number=number)


def _of(
    group: Group,
    kind: AlertKind,
    text: str,
    alerts: Alerts,
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
        link=_link(alerts, "groups/", group.fingerprint),
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
    return f"{count:,} {'letter' if count == 1 else 'letters'}"


def _long(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {name}{'' if seconds == size else 's'}"
    return f"{seconds:g} seconds"


def _pending(source: str) -> Node:
    return All((_PENDING, Term("source", Op.IS, (literal(source),))))


def _link(alerts: Alerts, page: str, what: str) -> str:
    if alerts.link is None:
        return ""
    return f"{alerts.link.rstrip('/')}/{page}{quote(what, safe='')}"
