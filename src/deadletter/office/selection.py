"""Choosing which letters a replay sends: oldest first, verdicts, then the limit."""

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from deadletter.core.care import Care
from deadletter.core.errors import Conflict
from deadletter.core.letter import DeadLetter
from deadletter.core.verdicts import Verdict
from deadletter.ports import LetterStore

from .batches import whole_letters
from .preflight import Plan, Preflight, Tally


class Selected(Struct, frozen=True):
    """Letters that a replay sends, and the verdicts that chose them."""

    plan: Plan
    ids: tuple[str, ...]


async def select(
    store: LetterStore,
    preflight: Preflight,
    ids: Sequence[str],
    *,
    query: str,
    care: Care,
    limit: int | None,
    most: int,
    more: bool = False,
) -> Selected:
    """
    Judge letters, oldest sent first, until `limit` of them are to be sent.

    Letters that are left out are not among them, but for those past the cap: they
    are quarantined when their turn comes. If nothing is to be sent, all are but those
    that were drained from another server.
    """
    if len(ids) > min(most, most if limit is None else limit):
        ids = (await store.sent_order(ids))[:most]
    tally = Tally(preflight.to, care)
    chosen: list[str] = []
    elsewhere: set[str] = set()
    seen = sent = 0
    async for letters, verdicts in judged(
        store, preflight, ids, care=care, limit=limit
    ):
        tally.add(letters, verdicts)
        seen += len(letters)
        for letter, verdict in zip(letters, verdicts, strict=True):
            is_sent = care.sends(verdict)
            sent += is_sent
            if verdict is Verdict.ELSEWHERE:
                elsewhere.add(letter.id)
            if is_sent or verdict is Verdict.PAST_CAP:
                chosen.append(letter.id)
    is_cut = more or (sent == limit and seen < len(ids))
    plan = tally.plan(query, more=is_cut, through=preflight.through)
    here = [id_ for id_ in ids if id_ not in elsewhere]
    return Selected(plan, tuple(chosen if plan.sendable else here))


def check_not_elsewhere(selected: Selected) -> None:
    """Raise `Conflict` if all letters were drained from other servers."""
    if not selected.ids and selected.plan.verdicts.get(Verdict.ELSEWHERE):
        raise Conflict(
            "these letters were drained from a server of others, and nothing says which"
            " one they go back to: name it as [sources.NAME] in deadletter.toml, send"
            " them through a URL, or name a mailbox of ours to send them to"
        )


async def judged(
    store: LetterStore,
    preflight: Preflight,
    ids: Sequence[str],
    *,
    care: Care,
    limit: int | None,
) -> AsyncIterator[tuple[Sequence[DeadLetter], Sequence[Verdict]]]:
    """Letters and their verdicts, some at a time, until `limit` are to be sent."""
    left = limit
    async for letters in whole_letters(store, ids):
        verdicts = await preflight.judge(letters)
        within = _within(left, care, verdicts)
        yield letters[:within], verdicts[:within]
        if left is not None:
            left -= sum(care.sends(verdict) for verdict in verdicts[:within])
            if not left:
                return


def _within(left: int | None, care: Care, verdicts: Sequence[Verdict]) -> int:
    """Return how many letters to go through, until that many are to be sent."""
    if left is None:
        return len(verdicts)
    for place, verdict in enumerate(verdicts):
        if not left:
            return place
        left -= care.sends(verdict)
    return len(verdicts)
