"""Repairs that somebody looks at: their frozen letters, the verdicts, and what was done."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

from litestar import Request
from msgspec import structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.patch import Patch
from deadletter.core.text import many
from deadletter.office.repair import RepairVerdict
from deadletter.office.selection import Chosen
from deadletter.office.verbs import Moved
from deadletter.ports import Clock
from deadletter.server.auth.guards import check_role
from deadletter.server.console.errands import Errand, Progress
from deadletter.server.console.letters.bulk_acts import Actor, still_allowed
from deadletter.server.console.letters.sentences import left_alone
from deadletter.server.console.notices import Notice
from deadletter.server.context import ServerContext

LASTS: Final = 3_600.0  # seconds that a repair is kept
AT_ONCE: Final = 200  # letters that are judged or changed while the browser waits
_LOOKS: Final = 8  # times that an answer waits for the verdicts...
_PAUSE: Final = 0.05  # ...and the seconds between them
_MOST: Final = 50  # repairs of one server
_MOST_IDS: Final = 1_000_000  # letters of all of them
NAMED: Final = 50  # letters of each verdict that are named


class Repair:
    """One repair: its letters were frozen when somebody asked what it would change."""

    def __init__(self, who: Identity, chosen: Chosen, patch: Patch, at: datetime) -> None:
        self.key = secrets.token_hex(8)
        self.who = who
        self.query = chosen.query
        self.patch = patch
        self.ids = chosen.ids
        self.at = at
        self.reason = ""
        self.verdicts: Counter[RepairVerdict] = Counter()
        self.named: dict[RepairVerdict, list[str]] = {}
        self.changing: list[str] = []  # the letters that it would change
        self.judging: Errand | None = None
        self.applying: Errand | None = None
        self.result: Moved | None = None  # once somebody applied it
        self.done: list[str] = []
        self.revisions: dict[str, int] = {}  # of letters whose original is what was there
        self.replay = ""  # the replay that was planned of it
        self.forgotten_at = float("inf")

    @property
    def path(self) -> str:
        """The page that shows it."""
        return f"/repairs/{self.key}"

    @property
    def judged(self) -> int:
        """The number of letters that have a verdict."""
        return self.verdicts.total()

    @property
    def is_judged(self) -> bool:
        """Whether all letters have a verdict."""
        return self.judged >= len(self.ids)

    @property
    def running(self) -> Errand | None:
        """The errand that is under way."""
        found = (one for one in (self.judging, self.applying) if one and one.ended is None)
        return next(found, None)


class RepairDesk:
    """The repairs of one server that somebody looks at."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, Repair] = {}

    def open(self, who: Identity, chosen: Chosen, patch: Patch) -> Repair:
        """Keep a new repair, and return it."""
        self._forget_old(len(chosen.ids))
        repair = Repair(who, chosen, patch, self._clock.now())
        repair.forgotten_at = self._clock.monotonic() + LASTS
        self._kept[repair.key] = repair
        return repair

    def find(self, who: Identity, key: str) -> Repair:
        """Return a repair of this person. Raises NotFound if there is none."""
        self._forget_old(0)
        found = self._kept.get(key)
        if found is None or not _is_theirs(who, found):
            raise NotFound(
                "there is no such repair: it was begun more than an hour ago, or the server was"
                " started again since. Begin it again: letters that are repaired already stay"
                " as they are"
            )
        return found

    def of(self, who: Identity) -> list[Repair]:
        """Return the repairs of this person, latest first."""
        self._forget_old(0)
        return [one for one in reversed(self._kept.values()) if _is_theirs(who, one)]

    def _forget_old(self, size: int) -> None:
        now = self._clock.monotonic()
        for key, one in list(self._kept.items()):
            is_over = one.forgotten_at <= now or len(self._kept) >= _MOST or self._is_full(size)
            if is_over and one.running is None:
                del self._kept[key]

    def _is_full(self, size: int) -> bool:
        return sum(len(one.ids) for one in self._kept.values()) + size > _MOST_IDS


def desk_of(request: Request[Any, Any, Any]) -> RepairDesk:
    """Return the repairs of the server that answers."""
    state = request.app.state
    if "repair_desk" not in state:
        state["repair_desk"] = RepairDesk(state.context.clock)
    desk: RepairDesk = state["repair_desk"]
    return desk


def _is_theirs(who: Identity, repair: Repair) -> bool:
    # What it shows depends on the mailboxes that its author sees.
    mine = who.principal == repair.who.principal
    return mine and who.sources == repair.who.sources


async def judge(actor: Actor, repair: Repair) -> None:
    """Judge the letters of a repair; many of them in the background."""
    if len(repair.ids) <= AT_ONCE:
        async for _ in _judging(actor.context, repair):
            pass
        return
    repair.judging = actor.console.errands.begin(
        actor.who,
        f"Look at {many(len(repair.ids), 'letter')} to repair",
        len(repair.ids),
        steps=_judging(actor.context, repair),
        finish=lambda _: _judged(repair),
        allowed=still_allowed(actor.context, actor.who, Role.OPERATOR),
        tell=lambda _: None,  # its page shows it
    )
    for _ in range(_LOOKS):  # some thousand letters take no longer
        if repair.running is None:
            return
        await asyncio.sleep(_PAUSE)


async def _judged(repair: Repair) -> Notice:
    text = f"{many(repair.judged, 'letter')} looked at; nothing was changed."
    return Notice(text=text, link=repair.path, link_text="The repair")


async def _judging(context: ServerContext, repair: Repair) -> AsyncIterator[Progress]:
    async for judged in context.office.repairs.judge_in_steps(repair.ids, repair.patch):
        for one in judged:
            repair.verdicts[one.verdict] += 1
            if one.verdict is RepairVerdict.CHANGE:
                repair.changing.append(one.letter_id)
            names = repair.named.setdefault(one.verdict, [])
            if len(names) < NAMED:
                names.append(one.letter_id)
        yield Progress(repair.judged, len(repair.changing))


def check_applicable(repair: Repair) -> None:
    """Raise Conflict unless a repair can be applied now."""
    if repair.running is not None or not repair.is_judged:
        raise Conflict("the letters of this repair are being looked at: wait until that has ended")
    if repair.result is not None and not _is_interrupted(repair):
        raise Conflict("this repair was made already: nothing was done again")
    if not repair.changing:
        raise Conflict("this repair would change no letter: nothing was done")


def _is_interrupted(repair: Repair) -> bool:
    return repair.applying is not None and bool(repair.applying.ended_early)


async def apply(actor: Actor, repair: Repair, reason: str) -> Notice | None:
    """
    Make a repair; return what was done, or nothing if it goes on in the background.

    Only letters that would change when somebody looked are changed, and each is judged again.
    """
    check_applicable(repair)
    applying = _Applying(actor, repair, reason)
    repair.reason = reason
    if len(repair.changing) <= AT_ONCE:
        repair.result = Moved()
        async for _ in applying.steps():
            pass
        return structs.replace(applying.notice(), link="")  # it is said on its own page
    repair.applying = actor.console.errands.begin(
        actor.who,
        f"Repair {many(len(repair.changing), 'letter')}",
        len(repair.changing),
        steps=applying.steps(),
        finish=applying.finish,
        allowed=still_allowed(actor.context, actor.who, Role.OPERATOR),
        tell=actor.tell,
    )
    repair.result = Moved()
    return None


class _Applying:
    """A repair under way."""

    def __init__(self, actor: Actor, repair: Repair, reason: str) -> None:
        self._actor = actor
        self._repair = repair
        self._by = actor.who.by(reason)

    async def steps(self) -> AsyncIterator[Progress]:
        repairs, repair = self._actor.context.office.repairs, self._repair
        done = set(repair.done)
        left = [id_ for id_ in repair.changing if id_ not in done]
        async for step in repairs.apply_in_steps(left, repair.patch, self._by):
            repair.done += step.ids
            repair.revisions |= step.revisions
            repair.result = step.so_far
            yield Progress(step.so_far.asked, step.so_far.moved)

    async def finish(self, ended_early: str) -> Notice:
        repair = self._repair
        notice = self.notice()
        if not ended_early:
            return notice
        rest = len(repair.changing) - len(repair.done)
        detail = f"repair ended after {len(repair.done):,} of {len(repair.changing):,} letters"
        by = self._actor.who.by()
        await self._actor.context.store.record("errand", "repair", by, f"{detail}: {ended_early}")
        text = f"{notice.text} {many(rest, 'letter')} not reached, because {ended_early}."
        return structs.replace(notice, text=text)

    def notice(self) -> Notice:
        """Return what was done, with its undo."""
        repair = self._repair
        result = repair.result or Moved()
        text = f"{many(len(repair.done), 'letter')} repaired. {left_alone(result)}".strip()
        return Notice(text=text, undo=self._undo(), link=repair.path, link_text="Plan their replay")

    def _undo(self) -> str:
        actor, revisions = self._actor, dict(self._repair.revisions)
        if not revisions:
            return ""

        async def undo(context: ServerContext, who: Identity) -> Notice:
            check_role(who, Role.OPERATOR)
            undoing = _Undoing(structs.replace(actor, context=context, who=who), revisions)
            return await undoing.run()

        return actor.console.undoing.keep(actor.who, undo, size=len(revisions))


class _Undoing:
    """The undo of a repair: letters that nobody changed since get their originals back."""

    def __init__(self, actor: Actor, revisions: Mapping[str, int]) -> None:
        self._actor = actor
        self._revisions = revisions
        self._result = Moved()

    async def run(self) -> Notice:
        """Undo the repair at once, or in the background if there are many letters."""
        if len(self._revisions) <= AT_ONCE:
            async for _ in self._steps():
                pass
            return await self._finish("")
        title = f"Undo the repair of {many(len(self._revisions), 'letter')}"
        errand = self._actor.console.errands.begin(
            self._actor.who,
            title,
            len(self._revisions),
            steps=self._steps(),
            finish=self._finish,
            allowed=still_allowed(self._actor.context, self._actor.who, Role.OPERATOR),
            tell=self._actor.tell,
        )
        text = f"{title}: this goes on in the server, also when you close the page."
        return Notice(text=text, link=errand.path, link_text="See how far it is")

    async def _steps(self) -> AsyncIterator[Progress]:
        by = self._actor.who.by("undo of a repair")
        repairs = self._actor.context.office.repairs
        undoing = repairs.undo_in_steps(self._revisions, by, revisions=self._revisions)
        async for step in undoing:
            self._result = step.so_far
            yield Progress(step.so_far.asked, step.so_far.moved)

    async def _finish(self, ended_early: str) -> Notice:
        text = f"{many(self._result.moved, 'letter')} as before the repair."
        text = f"{text} {left_alone(self._result)}".strip()
        if ended_early:
            rest = len(self._revisions) - self._result.asked
            text = f"{text} {many(rest, 'letter')} not reached, because {ended_early}."
        return Notice(text=text)
