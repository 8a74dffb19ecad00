"""Routes of repairs: the same change to the bodies of many letters."""

from typing import Annotated, Any, Final, TypeAlias

from litestar import post
from litestar.params import JSONBody
from msgspec import Meta

from deadletter.core.access import Role
from deadletter.core.patch import Patch, parse_patch
from deadletter.core.text import encode_document
from deadletter.office.repair import MOST_SAMPLES, SAMPLES, RepairPlan
from deadletter.office.verbs import Moved
from deadletter.server.acting.choice import Choice, choose
from deadletter.server.acting.letter_acts import with_unseen
from deadletter.server.auth.guards import needs
from deadletter.server.context import Here, Who
from deadletter.server.search import Searches

ACT: Final = [needs(Role.OPERATOR)]

Members: TypeAlias = Annotated[
    dict[str, Any] | str,
    Meta(
        description="A JSON Merge Patch (RFC 7386): members to set; null removes a member. As"
        " a string with JSON, it keeps numbers as they are written, such as 1.10."
    ),
]
Was: TypeAlias = Annotated[
    dict[str, Any] | str,
    Meta(
        description="Change only bodies that have these values; null: the member is missing."
        " An object, or a string with JSON."
    ),
]
Why: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=4_000, description="Why; recorded in the audit.")
]
Samples: TypeAlias = Annotated[
    int, Meta(ge=0, le=MOST_SAMPLES, description="Differences to show, and ids of each verdict.")
]


class RepairChoice(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters, and the change of their bodies."""

    patch: Members
    was: Was | None = None

    @property
    def change(self) -> Patch:
        """Return the change. Raises ConfigError if it is invalid."""
        return parse_patch(_text(self.patch), "" if self.was is None else _text(self.was))


def _text(given: dict[str, Any] | str) -> str:
    return given if isinstance(given, str) else encode_document(given).decode()


class RepairQuestion(RepairChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repair to look at before it is made."""

    samples: Samples = SAMPLES


class RepairOrder(RepairChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repair to make."""

    reason: Why


class UndoOrder(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Letters to give their original messages back."""

    reason: Why


@post("/letters/repair/plan", guards=ACT, status_code=200)
async def plan_repair(
    context: Here, who: Who, searching: Searches, data: JSONBody[RepairQuestion]
) -> RepairPlan:
    """
    Return what a repair would do with letters; nothing is changed.

    Each letter gets a verdict. The differences of some that would change are returned
    masked.
    """
    change = data.change
    found = await choose(context, who, searching, data)
    planning = context.office.repairs.plan(found.ids, change, samples=data.samples)
    return await searching.look(planning)


@post("/letters/repair", guards=ACT, status_code=200)
async def repair_letters(
    context: Here, who: Who, searching: Searches, data: JSONBody[RepairOrder]
) -> Moved:
    """
    Make the same change to the bodies of letters; the originals are kept.

    Letters that do not fit are left as they are and counted by reason. Repeating a repair
    changes nothing. A search needs the expected number of letters.
    """
    data.check_count("repair", first="plan the repair")
    change = data.change
    found = await choose(context, who, searching, data)
    result = await context.office.repairs.apply(found.ids, change, who.by(data.reason))
    return with_unseen(result, data, found.ids)


@post("/letters/repair/undo", guards=ACT, status_code=200)
async def undo_repairs(
    context: Here, who: Who, searching: Searches, data: JSONBody[UndoOrder]
) -> Moved:
    """
    Give edited letters their original messages back.

    This undoes every edit of a letter, not only the last one. A search needs the expected
    number of letters.
    """
    data.check_count("undo")
    found = await choose(context, who, searching, data)
    result = await context.office.repairs.undo(found.ids, who.by(data.reason))
    return with_unseen(result, data, found.ids)


routes: Final[list[Any]] = [plan_repair, repair_letters, undo_repairs]
