"""Screens of the console: what the navigation shows, and in which order."""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deadletter.core.access import Identity, Role

Section: TypeAlias = Literal["work", "queues", "running"]
BadgeName: TypeAlias = Literal["", "groups", "letters", "replays"]


class Screen(Struct, frozen=True, kw_only=True):
    """
    One entry of the navigation.

    `key` is the second key of its shortcut: `g`, then `key`. `phone` says whether the bar
    of small screens has it; the others are behind More.
    """

    name: str  # pages say which screen they belong to
    title: str
    path: str
    icon: str
    section: Section
    key: str = ""
    badge: BadgeName = ""
    role: Role = Role.READER
    phone: bool = False


SCREENS: Final = (
    Screen(
        name="overview",
        title="Overview",
        path="/",
        icon="house",
        section="work",
        key="o",
        phone=True,
    ),
    Screen(
        name="groups",
        title="Groups",
        path="/groups",
        icon="layers",
        section="work",
        key="g",
        badge="groups",
        phone=True,
    ),
    Screen(
        name="letters",
        title="Letters",
        path="/letters",
        icon="mail",
        section="work",
        key="l",
        badge="letters",
        phone=True,
    ),
    Screen(
        name="replays",
        title="Replays",
        path="/replays",
        icon="send",
        section="work",
        key="r",
        badge="replays",
        phone=True,
    ),
    Screen(
        name="queues", title="Mailboxes", path="/queues", icon="inbox", section="queues", key="q"
    ),
    Screen(name="lent", title="Lent queues", path="/lent", icon="server", section="queues"),
    Screen(name="intake", title="Intake", path="/intake", icon="download", section="queues"),
    Screen(
        name="audit", title="Audit", path="/audit", icon="scroll-text", section="running", key="a"
    ),
    Screen(
        name="access",
        title="Access",
        path="/access",
        icon="key-round",
        section="running",
        role=Role.ADMIN,
    ),
    Screen(name="system", title="System", path="/system", icon="gauge", section="running", key="s"),
)
"""All screens, in the order of the navigation. A new screen adds itself here."""


def screens_for(who: Identity) -> tuple[tuple[Screen, ...], ...]:
    """Return the screens that a person may open, by section."""
    sections: dict[str, list[Screen]] = {}
    for screen in SCREENS:
        if who.may(screen.role):
            sections.setdefault(screen.section, []).append(screen)
    return tuple(map(tuple, sections.values()))
