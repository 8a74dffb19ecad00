"""Dialogs for acts on letters: what will be done to how many, and what will be left alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.letter import State
from deadletter.core.query import All, Op, Term, first_word, literal, parse
from deadletter.core.text import many
from deadletter.office.batches import batched
from deadletter.office.letter_search import counted_by, of_sources
from deadletter.office.selection import MOST
from deadletter.office.verbs import BY_NAME, Verb
from deadletter.server.auth.guards import check_role
from deadletter.server.console import words
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

from .list_queries import list_path

LONG: Final = 5_000
"""Letters above which an act runs in the background of the server."""
NOTE: Final = "note"


class Choosing(Struct, frozen=True, kw_only=True):
    """The letters that somebody chose on a list: some of them, or all of the search."""

    ids: tuple[str, ...] = ()
    query: str = ""
    is_all: bool = False

    @property
    def by_query(self) -> bool:
        """Return whether they are all letters of the search."""
        return self.is_all or not self.ids


class ActDialog(Struct, frozen=True, kw_only=True):
    """What the dialog of one act says and asks for."""

    verb: str
    title: str
    about: str
    url: str
    confirm: str
    back: str  # the page it was opened on
    ids: tuple[str, ...] = ()
    query: str = ""  # of all letters of a search
    expect: int | None = None
    count: int = 0
    left_alone: tuple[str, ...] = ()
    can_act: bool = True
    is_harm: bool = False
    is_long: bool = False
    is_cut: bool = False  # the search finds more than one act takes
    undo: str = ""
    waiting: int = 0  # letters that wait for the outcome of a replay, to be included on request
    late_outcome: str = ""
    word: str = ""  # a free word of the search, which has to be meant
    reason_label: str = ""
    needs_reason: bool = False
    needs_number: bool = False
    is_note: bool = False


async def load_dialog(
    context: ServerContext, who: Identity, searching: Searching, name: str, choosing: Choosing
) -> ActDialog:
    """Return the dialog of a verb, or of a note, with the letters counted now."""
    back = list_path(choosing.query)
    if name == NOTE:
        check_role(who, Role.OPERATOR)
        return await _note(context, searching, choosing, back)
    verb = BY_NAME.get(name)
    if verb is None:
        raise NotFound(f"there is no act {name[:40]!r} on letters")
    check_role(who, verb.role)
    found = await count_states(context, searching, choosing)
    return _dialog(verb, choosing, found, back)


class StateCounts(Struct, frozen=True, kw_only=True):
    """The number of chosen letters, and how many of them are in each state, if known."""

    total: int
    states: dict[State, int] | None = None
    is_cut: bool = False


async def count_states(
    context: ServerContext, searching: Searching, choosing: Choosing
) -> StateCounts:
    """
    Count the chosen letters exactly, and by state as far as that is cheap.

    A search that finds more than one act takes counts as that many.
    """
    if not choosing.by_query:
        states = await _states_of(searching, choosing.ids)
        return StateCounts(total=sum(states.values()), states=states)
    node = parse(choosing.query)
    counts = await context.store.counts()
    by_counters = {
        state: counted_by(All((node, Term("is", Op.IS, (state,)))), counts, searching.sources)
        for state in State
    }
    known = {state: count for state, count in by_counters.items() if count is not None}
    if len(known) == len(State):
        total = sum(known.values())
        return StateCounts(total=min(total, MOST), states=known, is_cut=total > MOST)
    ids = await searching.freeze(of_sources(node, searching.sources), limit=MOST)
    few = await _states_of(searching, ids) if len(ids) <= LONG else None
    return StateCounts(total=len(ids), states=few, is_cut=len(ids) == MOST)


async def _states_of(searching: Searching, ids: Sequence[str]) -> dict[State, int]:
    """Return how many of some letters are in each state."""
    counts: Counter[State] = Counter()
    for batch in batched(ids):
        named = Term("id", Op.IS, tuple(map(literal, batch)))
        page = await searching.search(named, limit=len(batch), after=None)
        counts.update(head.state for head in page.heads)
    return dict(counts)


def _dialog(verb: Verb, choosing: Choosing, found: StateCounts, back: str) -> ActDialog:
    waiting = 0
    if found.states and verb.takes_unconfirmed and State.REPLAYING in found.states:
        waiting = found.states[State.REPLAYING]
    fitting = _fitting(verb, found)
    letters = many(fitting, "letter")
    can_act = bool(fitting or waiting)
    word = first_word(parse(choosing.query)) if choosing.by_query else None
    return ActDialog(
        verb=verb.name,
        title=f"{verb.name.capitalize()} {letters}" if can_act else f"Nothing to {verb.name}",
        about=verb.about,
        url=f"/letters/{verb.name}",
        confirm=f"{verb.name.capitalize()} {letters}" if can_act else "",
        back=back,
        ids=() if choosing.by_query else choosing.ids,
        query=(choosing.query or "*") if choosing.by_query else "",
        expect=found.total if choosing.by_query else None,
        count=fitting,
        left_alone=_left_alone(verb, found),
        can_act=can_act,
        is_harm=bool(verb.danger),
        is_long=found.total > LONG,
        is_cut=found.is_cut,
        undo=_undo(verb),
        waiting=waiting,
        late_outcome=verb.late_outcome,
        word=word.text if word else "",
        reason_label=verb.reason,
        needs_reason=verb.needs_reason,
        needs_number=verb.role is Role.ADMIN,
    )


async def _note(
    context: ServerContext, searching: Searching, choosing: Choosing, back: str
) -> ActDialog:
    found = await count_states(context, searching, choosing)
    letters = many(found.total, "letter")
    word = first_word(parse(choosing.query)) if choosing.by_query else None
    return ActDialog(
        verb=NOTE,
        title=f"Add a note to {letters}",
        about="It appears in the story of each letter.",
        url="/letters/notes",
        confirm=f"Add a note to {letters}" if found.total else "",
        back=back,
        ids=() if choosing.by_query else choosing.ids,
        query=(choosing.query or "*") if choosing.by_query else "",
        expect=found.total if choosing.by_query else None,
        count=found.total,
        can_act=bool(found.total),
        is_cut=found.is_cut,
        undo="A note cannot be taken back.",
        word=word.text if word else "",
        reason_label="Note",
        needs_reason=True,
        is_note=True,
    )


def _fitting(verb: Verb, found: StateCounts) -> int:
    """Return how many letters the verb would change; all of them if states are not known."""
    if found.states is None:
        return found.total
    left = sum(count for state, count in found.states.items() if state not in verb.old)
    return max(found.total - left, 0)


def _left_alone(verb: Verb, found: StateCounts) -> tuple[str, ...]:
    if found.states is None:
        return (f"Only letters that are {verb.states} are changed.",)
    sentences = []
    for state in State:
        count = found.states.get(state, 0)
        if state in verb.old or not count:
            continue
        sentences.append(f"{count:,} {'is' if count == 1 else 'are'} {state}")
    if not sentences:
        return ()
    return (f"Left alone: {words.joined(sentences)}.",)


def _undo(verb: Verb) -> str:
    if not verb.opposite:
        return "This cannot be undone."
    opposite = BY_NAME[verb.opposite]
    return f"Undo is offered for ten minutes: it makes the letters {opposite.new}."


def check_number(typed: str, count: int) -> None:
    """Raise ConfigError unless somebody typed the number of letters that will be changed."""
    if typed.replace(",", "").replace(" ", "").strip() != str(count):
        raise ConfigError(f"type the number of letters, {count:,}, to confirm: got {typed[:20]!r}")
