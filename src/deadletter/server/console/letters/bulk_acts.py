"""One act on many letters: at once, or as an errand, with its opposite."""

from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct, structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import Conflict
from deadletter.core.text import many
from deadletter.office.letters import ActStep
from deadletter.office.verbs import BY_NAME, Moved, Verb
from deadletter.server.auth.guards import check_role
from deadletter.server.console.errands import Allowed, Progress
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import Console
from deadletter.server.context import ServerContext

from .act_dialogs import LONG
from .sentences import done_sentence, noted_sentence, nothing_sentence, with_missing


class Actor(Struct, frozen=True, kw_only=True):
    """Who acts where: a person, and what the server keeps for pages."""

    console: Console
    context: ServerContext
    who: Identity
    tell: Callable[[Notice], None]  # keeps a notice for the person's next page


class Act(Struct, frozen=True, kw_only=True):
    """An act on letters that goes in steps, and its words."""

    name: str  # of a verb, or `note`
    nothing: str  # what was not done to any letter: discarded
    sentence: Callable[[Moved], str]
    role: Role
    steps: Callable[[], AsyncIterator[ActStep]]
    opposite: Verb | None = None


def verb_act(
    actor: Actor, verb: Verb, ids: Sequence[str], reason: str, *, unconfirmed: bool = False
) -> Act:
    """Return a verb as an act. Raises ConfigError if its reason is missing."""
    by, letters = actor.who.by(reason), actor.context.office.letters
    verb.check(by, unconfirmed=unconfirmed)
    return Act(
        name=verb.name,
        nothing=verb.done,
        sentence=lambda result: done_sentence(verb, result),
        role=verb.role,
        steps=lambda: letters.act_in_steps(verb, ids, by, unconfirmed=unconfirmed),
        opposite=BY_NAME[verb.opposite] if verb.opposite else None,
    )


def note_act(actor: Actor, ids: Sequence[str], text: str) -> Act:
    """Return a note as an act."""
    by, letters = actor.who.by(), actor.context.office.letters
    return Act(
        name="note",
        nothing="noted",
        sentence=noted_sentence,
        role=Role.OPERATOR,
        steps=lambda: letters.note_in_steps(ids, text, by),
    )


async def run_act(actor: Actor, act: Act, ids: Sequence[str], *, missing: int = 0) -> Notice:
    """
    Do an act, or begin an errand that does it if there are many letters.

    Args:
        actor: The person, and the server.
        act: What is done.
        ids: The letters, which the person may see.
        missing: The number of letters that were named but are not there for this person.
    """
    running = _Running(actor, act, len(ids), missing)
    if len(ids) > LONG:
        return running.begin()
    async for _ in running.steps():
        pass
    return running.notice()


class _Running:
    """An act under way: what it has done so far."""

    def __init__(self, actor: Actor, act: Act, size: int, missing: int) -> None:
        self._actor = actor
        self._act = act
        self._size = size
        self._missing = missing
        self._moved: list[str] = []
        self._result = Moved()

    def begin(self) -> Notice:
        actor = self._actor
        title = f"{self._act.name.capitalize()} {many(self._size, 'letter')}"
        errand = actor.console.errands.begin(
            actor.who,
            title,
            self._size,
            steps=self.steps(),
            finish=self._finish,
            allowed=still_allowed(actor.context, actor.who, self._act.role),
            tell=actor.tell,
        )
        return Notice(
            text=f"{title}: this goes on in the server, also when you close the page.",
            link=errand.path,
            link_text="See how far it is",
        )

    async def steps(self) -> AsyncIterator[Progress]:
        async for step in self._act.steps():
            self._moved += step.ids
            self._result = step.so_far
            yield Progress(step.so_far.asked, step.so_far.moved)

    def notice(self) -> Notice:
        """Return what was done. Raises Conflict if it is nothing."""
        result = with_missing(self._result, self._missing)
        if not result.moved:
            raise Conflict(nothing_sentence(self._act.nothing, result))
        return Notice(text=self._act.sentence(result), undo=self._keep_opposite())

    async def _finish(self, ended_early: str) -> Notice:
        text = self._act.sentence(self._result)
        if ended_early:
            rest = self._size - self._result.asked
            text = f"{text} {many(rest, 'letter')} not reached, because {ended_early}."
            await self._record(ended_early)
        return Notice(text=text, undo=self._keep_opposite())

    async def _record(self, ended_early: str) -> None:
        """Say in the audit that an act ended before it had reached all letters."""
        detail = (
            f"{self._act.name} ended after {self._result.asked:,} of {self._size:,} letters:"
            f" {ended_early}"
        )
        by = self._actor.who.by()
        await self._actor.context.store.record("errand", self._act.name, by, detail)

    def _keep_opposite(self) -> str:
        """Keep the opposite of what was done; return the path that does it."""
        opposite, ids, actor = self._act.opposite, tuple(self._moved), self._actor
        if opposite is None or not ids:
            return ""

        async def undo(context: ServerContext, who: Identity) -> Notice:
            check_role(who, opposite.role)
            undoing = structs.replace(actor, context=context, who=who)
            act = verb_act(undoing, opposite, ids, f"undo of {self._act.name}")
            return structs.replace(await run_act(undoing, act, ids), undo="")

        return actor.console.undoing.keep(actor.who, undo, size=len(ids))


def still_allowed(context: ServerContext, who: Identity, role: Role) -> Allowed:
    """Return a function that says why a person may no longer do something."""

    async def allowed() -> str:
        if context.access is None:
            return ""
        for token in await context.access.tokens():
            if token.to.principal != who.principal:
                continue
            if token.is_over(context.clock.now()):
                return "your token has expired"
            return "" if token.to.may(role) else f"you no longer have the role {role}"
        return "your token was revoked"

    return allowed
