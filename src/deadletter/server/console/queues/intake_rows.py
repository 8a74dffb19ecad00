"""Intakes as rows: what each looks at, what it took, and what is wrong with it."""

from collections.abc import Sequence

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.intakes import IntakeState, IntakeStatus
from deadletter.core.text import many
from deadletter.server.acting.intake_acts import list_intakes
from deadletter.server.context import ServerContext


class IntakeRow(Struct, frozen=True, kw_only=True):
    """One intake."""

    status: IntakeStatus
    path: str
    is_busy: bool

    @property
    def word(self) -> str:
        """Return its state in a word."""
        return "in trouble" if self.status.trouble else str(self.status.state)


class IntakePage(Struct, frozen=True, kw_only=True):
    """All intakes of this server."""

    headline: str
    below: str
    rows: tuple[IntakeRow, ...]
    limited: bool


def intake_page(context: ServerContext, who: Identity) -> IntakePage:
    """Return the intakes that this person may see."""
    rows = tuple(intake_row(one) for one in list_intakes(context, who))
    return IntakePage(
        headline=_headline(rows), below=_below(rows), rows=rows, limited=bool(who.sources)
    )


def intake_row(status: IntakeStatus) -> IntakeRow:
    """Return one intake."""
    return IntakeRow(
        status=status, path=f"/intake/{status.name}", is_busy=status.state is not IntakeState.IDLE
    )


def _headline(rows: Sequence[IntakeRow]) -> str:
    if not rows:
        return "No intake is set up"
    wrong = sum(bool(row.status.trouble) for row in rows)
    followed = sum(row.status.state is IntakeState.FOLLOWING for row in rows)
    parts = [many(len(rows), "intake")]
    if wrong:
        parts.append(f"{wrong:,} in trouble")
    if followed:
        parts.append(f"{followed:,} followed")
    return ", ".join(parts)


def _below(rows: Sequence[IntakeRow]) -> str:
    if not rows:
        return ""
    waiting = [row.status.waiting for row in rows if row.status.waiting is not None]
    taken = sum(row.status.taken for row in rows)
    parts = [f"{many(taken, 'letter')} taken in since this server started"]
    if waiting:
        parts.insert(0, f"about {many(sum(waiting), 'message')} waiting")
    return " · ".join(parts)
