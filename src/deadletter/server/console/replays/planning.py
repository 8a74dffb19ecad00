"""Planning a replay: which letters, how carefully, and what would happen."""

import secrets
import shlex
from typing import Any, Final

from litestar import Request
from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import ConfigError, QueryError
from deadletter.core.query import first_word, parse
from deadletter.office.letter_search import of_sources
from deadletter.office.replay import FASTEST, HIGHEST_CAP
from deadletter.office.replay_sender import ReplaySender
from deadletter.office.replay_verdicts import CAP
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import MOST
from deadletter.server.acting import replay_acts
from deadletter.server.acting.choice import Choice, choose
from deadletter.server.console.problems import sentence
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

from .care_form import PACE, CareForm, number_of
from .sentences import what_will_happen

_KEPT: Final = 1_000  # forms of one server that were sent already


class NewForm(CareForm, frozen=True, kw_only=True):
    """The fields of the form that plans a replay; `key` makes that sending it twice is once."""

    ramp: bool = False  # boxes that are not ticked are not sent
    key_order: bool = False
    shown: bool = False
    q: str = ""
    ids: tuple[str, ...] = ()
    text: bool = False  # words without a field are meant
    limit: str = ""
    rate: str = ""
    cap: int = CAP
    to: str = ""
    through: str = ""
    reason: str = ""
    key: str = ""

    def choice(self) -> Choice:
        """Return the letters of the form."""
        if self.ids:
            return Choice(ids=self.ids)
        return Choice(query=self.q.strip() or "*", free_text=self.text)

    @property
    def most(self) -> int | None:
        """Return the most letters to send."""
        found = number_of(self.limit, "the limit")
        if found is None:
            return None
        if found != int(found) or not 1 <= found <= MOST:
            raise ConfigError(f"the limit must be a whole number, 1 to {MOST:,}, got {found:g}")
        return int(found)

    @property
    def pace(self) -> float | None:
        """Return the letters per second of a steady replay."""
        found = number_of(self.rate, "the rate")
        if self.how != "steady":
            return None
        found = PACE if found is None else found
        if not 0 < found <= FASTEST:
            raise ConfigError(f"the rate must be more than 0 letters a second, got {found:g}")
        return found


class NewPage(Struct, frozen=True, kw_only=True):
    """The page on which a replay is planned."""

    form: NewForm
    count: int
    at_least: bool
    counted: str  # the number of letters in words
    words: tuple[str, ...]  # what will happen
    problem: str  # of the search
    has_words: str  # a word of the search without a field
    targets: tuple[str, ...]  # other mailboxes that letters may go to
    servers: tuple[str, ...]
    first_key: str


async def load_new(
    context: ServerContext, who: Identity, searching: Searching, form: NewForm
) -> NewPage:
    """Return the page for a form as it is filled in so far."""
    problem, word, count, at_least = "", "", len(form.ids), False
    words: tuple[str, ...] = ()
    try:
        if not form.ids:
            node = parse(form.q)
            found_word = first_word(node)
            word = "" if found_word is None else str(found_word.text)
            if form.q.strip():
                found = await searching.count(of_sources(node, who.sources))
                count, at_least = found.letters, not found.is_all
        total = count if form.most is None else min(count, form.most)
        words = what_will_happen(form.care(), min(total, MOST), form.pace) if total else ()
    except (QueryError, ConfigError) as error:
        problem = sentence(str(error))
    serve = context.settings.serve
    return NewPage(
        form=form,
        count=count,
        at_least=at_least,
        counted=f"{'≥ ' if at_least else ''}{count:,} {'letter' if count == 1 else 'letters'}",
        words=words,
        problem=problem,
        has_words=word,
        targets=tuple(name for name in serve.replay_to if who.sees(name)),
        servers=tuple(context.settings.sources),
        first_key=form.key or secrets.token_hex(8),
    )


def command_of(form: NewForm) -> str:
    """Return the command that plans the same."""
    words = ["dlq", "replay", form.q or "QUERY"]
    if form.how == "careful":
        words += ["--canary", str(form.canary), *(["--ramp"] if form.ramp else [])]
    if form.how == "steady":
        words += ["--rate", form.rate or f"{PACE:g}"]
    return shlex.join([*words, "--dry-run"])


async def create(  # noqa: PLR0917 -- what the route was given
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    searching: Searching,
    sender: ReplaySender,
    form: NewForm,
) -> str:
    """Freeze the letters of a form, and return the id of their replay; once for each form."""
    made = _made(request)
    known = f"{who.principal or who.name}/{form.key}"
    if form.key and known in made:
        return made[known]
    if not 1 <= form.cap <= HIGHEST_CAP:
        raise ConfigError(f"the cap must be 1 to {HIGHEST_CAP:,}, got {form.cap}")
    if not form.reason.strip():
        raise ConfigError("a replay needs a reason: it stands in the audit")
    found = await choose(context, who, searching, form.choice(), to_replay=True)
    wanted = ReplayRequest(
        chosen=found,
        by=who.by(form.reason.strip()),
        limit=form.most,
        to=form.to or None,
        cap=form.cap,
        rate=form.pace,
        care=form.care(),
        through=form.through or None,
    )
    campaign = await replay_acts.freeze(context, who, sender, wanted)
    if form.key:
        while len(made) >= _KEPT:
            del made[next(iter(made))]
        made[known] = campaign.id
    return campaign.id


def _made(request: Request[Any, Any, Any]) -> dict[str, str]:
    """Return the replays that forms of this server made, by the keys of these forms."""
    state = request.app.state
    if "replays_made" not in state:
        state["replays_made"] = {}
    made: dict[str, str] = state["replays_made"]
    return made
