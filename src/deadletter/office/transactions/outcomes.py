"""Transactions on replayed copies: what consumers made of them, and what follows."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from deadletter.core.campaign import Outcome
from deadletter.core.letter import State
from deadletter.core.replay_rules import SETTLED_FROM, heard, is_done_with, landing
from deadletter.ports.letters import ReplaySettled

from .operations import Brief, LetterOperations, ReplayedCopy, Shifts


async def set_states(store: LetterOperations, targets: Mapping[Brief, State]) -> None:
    """Put letters into other states, counted; the caller decides whether they may move."""
    if not targets:
        return
    shifts: Shifts = Counter()
    by_state: defaultdict[State, list[Brief]] = defaultdict(list)
    for brief, state in targets.items():
        shifts[brief.source, brief.fingerprint, brief.state] -= 1
        shifts[brief.source, brief.fingerprint, state] += 1
        by_state[state].append(brief)
    for state, letters in by_state.items():
        await store.set_state(letters, state)
    await store.shift_counts(shifts)


class _Settlement:
    """The changes that news of copies make."""

    def __init__(self, news: Sequence[ReplaySettled]) -> None:
        self.told = heard((one.letter_id, one.generation, one.outcome) for one in news)
        self._reasons = {(one.letter_id, one.generation): one.why for one in news if one.why}
        self.reasons: list[tuple[str, int, int]] = []  # text, campaign, ordinal
        self.targets: dict[Brief, State] = {}
        self.ordinals: defaultdict[tuple[int, Outcome], list[int]] = defaultdict(list)
        self.ended: defaultdict[tuple[int, bool], list[int]] = defaultdict(list)
        self.moves: defaultdict[tuple[int, Outcome | None, Outcome], list[int]]
        self.moves = defaultdict(list)

    def add(self, copy: ReplayedCopy) -> None:
        """Decide what becomes of a copy and its letter."""
        letter, campaign = copy.letter, copy.campaign
        named = (letter.id, copy.generation)
        outcome = self.told.get(named)
        if outcome is None or copy.outcome not in SETTLED_FROM[outcome]:
            return  # news of another copy, or nothing new
        self.ordinals[campaign, outcome].append(copy.ordinal)
        self.moves[campaign, copy.outcome, outcome].append(letter.seq)
        if reason := self._reasons.get(named):
            self.reasons.append((reason, campaign, copy.ordinal))
        if copy.keyed:
            self.ended[campaign, is_done_with(outcome, letter.state)].append(letter.seq)
        state = landing(letter.state, letter.replays, copy.generation, outcome, copy.cap)
        if state is not None:
            self.targets[letter] = state


async def settle(store: LetterOperations, news: Sequence[ReplaySettled], now: datetime) -> None:
    """Record the outcomes of copies; campaigns may end. Repeated news changes nothing."""
    if not news:
        return
    settlement = _Settlement(news)
    for copy in await store.find_copies(settlement.told):
        settlement.add(copy)
    if not settlement.ordinals:
        return
    await set_states(store, settlement.targets)
    for (campaign, outcome), ordinals in settlement.ordinals.items():
        await store.settle_items(campaign, ordinals, outcome, now)
    if settlement.reasons:
        await store.explain_items(settlement.reasons)
    await store.count_items(settlement.moves)
    for (campaign, is_done), letters in settlement.ended.items():
        if is_done:
            await store.free_waiting(campaign, letters)
        else:
            await store.hold_waiting(campaign, letters, now)
    await store.finish_campaigns({campaign for campaign, _ in settlement.ordinals})
