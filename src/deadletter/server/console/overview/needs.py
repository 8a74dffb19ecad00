"""What needs somebody, as rows of the overview: each with the one link that leads to it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.office.triage.attention import Need, NeedKind
from deadletter.server.console.pages import path_to

_FIRST: Final = 8  # that are not behind "more"

Look: TypeAlias = tuple[str, str, str, str]
"""The icon, colour and word of a kind, and the words of its link."""

_LOOKS: Final[dict[NeedKind, Look]] = {
    NeedKind.REGRESSED: ("triangle-alert", "solid", "regressed", "Look"),
    NeedKind.HALTED: ("octagon-alert", "red", "halted", "See why"),
    NeedKind.BRAKE: ("circle-pause", "amber", "brake", "Mailbox"),
    NeedKind.LOOP: ("circle-alert", "red", "trouble", "System"),
    NeedKind.INTAKE: ("download", "red", "intake", "Intake"),
    NeedKind.APPROVAL: ("list-checks", "violet", "approval", "Review"),
    NeedKind.NEW: ("circle-alert", "red", "new", "Look"),
    NeedKind.GROWING: ("chart-line", "amber", "growing", "Look"),
    NeedKind.SUSPECTS: ("shield-alert", "amber", "suspects", "Mailbox"),
    NeedKind.QUARANTINED: ("shield-alert", "red", "quarantined", "Letters"),
    NeedKind.UNREVIEWED: ("clock", "", "waiting", "Letters"),
    NeedKind.EXPIRING: ("clock", "amber", "plan ends", "Plan"),
    NeedKind.UNSETTLED: ("refresh-cw", "violet", "no outcome", "Letters"),
    NeedKind.UNWORKED: ("inbox", "amber", "no worker", "Mailbox"),
}
_OF_REPLAYS: Final = frozenset({NeedKind.HALTED, NeedKind.APPROVAL, NeedKind.EXPIRING})
_OF_MAILBOXES: Final = frozenset({NeedKind.BRAKE, NeedKind.SUSPECTS, NeedKind.UNWORKED})


class NeedRow(Struct, frozen=True, kw_only=True):
    """One thing that needs somebody."""

    icon: str
    colour: str
    word: str
    text: str
    source: str
    since: datetime | None
    link: str
    link_text: str


class Needs(Struct, frozen=True, kw_only=True):
    """Everything that needs somebody, the most urgent first."""

    first: tuple[NeedRow, ...]
    more: tuple[NeedRow, ...] = ()

    @property
    def total(self) -> int:
        """Return how many there are."""
        return len(self.first) + len(self.more)


def rows_of(needs: Sequence[Need]) -> Needs:
    """Return needs as rows."""
    rows = tuple(map(_row, needs))
    return Needs(first=rows[:_FIRST], more=rows[_FIRST:])


def _row(need: Need) -> NeedRow:
    icon, colour, word, link_text = _LOOKS[need.kind]
    return NeedRow(
        icon=icon,
        colour=colour,
        word=word,
        text=need.text,
        source=need.source,
        since=need.since,
        link=need_path(need),
        link_text=link_text,
    )


def need_path(need: Need) -> str:
    """Return the page where something can be done about it."""
    if need.is_query:
        return path_to("letters", q=need.target)
    if need.kind in _OF_REPLAYS:
        return path_to("replays", need.target)
    if need.kind in _OF_MAILBOXES:
        return path_to("queues", need.target)
    if need.kind is NeedKind.INTAKE:
        return "/intake"
    return "/system" if need.kind is NeedKind.LOOP else path_to("groups", need.target)
