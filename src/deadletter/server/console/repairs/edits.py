"""Patches from one edit: what was changed in a letter, for the letters like it."""

from collections import Counter
from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.errors import ConfigError
from deadletter.core.letter import DeadLetter
from deadletter.core.patch import Inexpressible, Patch, make_patch, parse_patch
from deadletter.core.query import literal
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.text import clean, clean_json, many
from deadletter.office.letter_search import of_sources
from deadletter.office.repair import RepairVerdict
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

_MOST: Final = 500  # letters that an offer looks at
_SECONDS: Final = 2.0


class Offer(Struct, frozen=True, kw_only=True):
    """How many letters of the group of an edited letter need the same change."""

    text: str
    path: str  # where they are repaired; empty if there is nothing to do
    link: str = ""


def patch_of(letter: DeadLetter) -> Patch:
    """Return what was changed in a letter since it died; raises `Inexpressible`."""
    return make_patch(letter.as_it_died.body, letter.message.body)


def group_query(letter: DeadLetter) -> str:
    """Return a search for the open letters of the group of a letter; empty without a group."""
    return f"group:{letter.head.fingerprint} is:open" if letter.head.fingerprint else ""


def field_of(text: str) -> str:
    """Return JSON for a field with several lines, which shows it exactly."""
    return _plain(clean_json(text))


def typed_again(text: str) -> str:
    """Return what somebody has typed for the same field; odd characters are spelled as JSON."""
    text = text.replace("\r\n", "\n")
    try:
        parse_patch(text)
    except ConfigError:
        return _plain(text)
    return field_of(text)


def _plain(text: str) -> str:
    return "".join(one for one in text if one in "\n\t" or clean(one) == one)


async def offer_for(
    context: ServerContext, who: Identity, searching: Searching, letter: DeadLetter
) -> Offer:
    """Return how many open letters of the same group the edit of a letter fits."""
    query = group_query(letter)
    path = path_to("repairs", "new", q=query, **{"from": letter.id})
    if not query or letter.original is None:
        return Offer(text="", path="")
    try:
        patch = patch_of(letter)
    except Inexpressible as why:
        return Offer(
            text=f"This edit cannot be repeated in other letters as it is: {why}.",
            path=path,
            link="Repair them another way",
        )
    return await searching.look(_counted(context, who, letter, patch, path))


async def _counted(
    context: ServerContext, who: Identity, letter: DeadLetter, patch: Patch, path: str
) -> Offer:
    clock = context.clock
    node = All(
        (Term("group", Op.IS, (literal(letter.head.fingerprint),)), Term("is", Op.IS, ("open",)))
    )
    page = await context.office.letters.search(of_sources(node, who.sources), limit=_MOST)
    ids = [head.id for head in page.heads if head.id != letter.id]
    if not ids:
        return Offer(text="No other letter of its group is open.", path="")
    until = clock.monotonic() + _SECONDS
    verdicts: Counter[RepairVerdict] = Counter()
    async for judged in context.office.repairs.judge_in_steps(ids, patch):
        verdicts.update(one.verdict for one in judged)
        if clock.monotonic() > until:
            break
    fits, seen = verdicts[RepairVerdict.CHANGE], verdicts.total()
    is_all = page.after is None and seen == len(ids)
    others = many(seen, "other open letter")
    of = f"the {'' if is_all else 'latest '}{others} of its group"
    if not fits:
        return Offer(text=f"The same change fits none of {of}.", path=path, link="Repair them…")
    return Offer(
        text=f"The same change fits {fits:,} of {of}.",
        path=path,
        link="Repair it too" if fits == 1 else "Repair them too",
    )
