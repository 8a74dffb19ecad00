"""Combined observers, combined metrics of several processes, and arrivals of letters."""

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.events import Event, Observer
from deadletter.core.letter import Group


def fan_out(*observers: Observer) -> Observer:
    """
    Return an observer that passes every event to every observer.

    An observer that raises is logged once, and the others still get the event.
    """
    complained: set[int] = set()

    def observe(event: Event) -> None:
        for number, observer in enumerate(observers):
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 -- observers can be application code
                if number not in complained:
                    complained.add(number)
                    _complain(observer, error)

    return observe


def _complain(observer: Observer, error: Exception) -> None:
    name = getattr(observer, "__qualname__", type(observer).__qualname__)
    with suppress(Exception):  # a log handler of the application can raise as well
        logging.getLogger("deadletter").error(
            "observer %s fails; further errors of it are not shown", name, exc_info=error
        )


_HELP: Final = b"# HELP "
_TYPE: Final = b"# TYPE "
_NAME: Final = re.compile(rb"([a-zA-Z0-9_:]+)(\{?)")


def gathered(texts: Mapping[str, bytes]) -> bytes:
    """
    Return the metrics of several processes as one text.

    Every number gets a label `process`. They are not added up: a restarted process starts at
    zero, and a sum that falls means nothing.
    """
    families: dict[bytes, list[bytes]] = {}
    for process, text in texts.items():
        label = f'process="{process}"'.encode()
        family: list[bytes] = []
        for line in text.split(b"\n"):
            if line.startswith(_HELP):
                family = families.setdefault(line, [line])
            elif line.startswith(_TYPE):
                family += [line] if len(family) == 1 else []
            elif found := _NAME.match(line):
                rest = line[found.end() :]
                labels = label + (b"," if found[2] else b"}")
                family.append(found[1] + b"{" + labels + rest)
    lines = [line for family in families.values() for line in family]
    return b"\n".join([*lines, b""])


# The counter of a group never decreases. So arrivals are visible even if a consumer removes
# dead letters immediately, and the depth is always zero.

KEPT: Final = 10_000  # groups whose counters are remembered


class Arrived(Struct, frozen=True):
    """Deaths of one group since the last check."""

    group: Group
    count: int
    is_new: bool  # the group itself was first seen since


class Arrivals:
    """
    The arrivals between two checks of the latest groups.

    For an unknown group that was first seen after `since`, all deaths are arrivals; for other
    unknown groups, counting begins with the current number.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._totals: dict[str, int] = {}

    def look(self, groups: Sequence[Group]) -> list[Arrived]:
        """Return what arrived since the last check."""
        arrived = []
        for group in groups:
            # Moved to the end, so that the least recently seen groups are removed first.
            before = self._totals.pop(group.fingerprint, None)
            self._totals[group.fingerprint] = group.total
            is_new = before is None and group.first_seen >= self._since
            if before is None and not is_new:
                continue
            if (count := group.total - (before or 0)) > 0:
                arrived.append(Arrived(group, count, is_new))
        for name in list(self._totals)[: max(0, len(self._totals) - KEPT)]:
            del self._totals[name]
        return arrived
