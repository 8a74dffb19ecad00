"""
Sending in steps, for engines without a replay in one transaction: take, send, record.

Each letter has its own outcome. A letter that its server rejects is `refused`, and the others
continue; what was sent is recorded even if a neighbour fails.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import (
    Campaign,
    Halt,
    Outcome,
    Send,
    Step,
    Wait,
    judge_whole_keys,
    next_step,
    unsent,
    unsettled,
)
from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    PartlySent,
    Refused,
    Unavailable,
)
from deadletter.core.message import Lineage, Message
from deadletter.core.redact import redact
from deadletter.core.replay_rules import copied
from deadletter.core.signing import Keys, sign_lineage
from deadletter.core.text import cut, plain_line
from deadletter.ports import LetterStore, Outlet, Posted, ReplaySettled, ReplayTaken, Sink

_LONGEST_WHY: Final = 300


async def post(
    store: LetterStore,
    broker: Outlet,
    campaign: Campaign,
    *,
    limit: int,
    leave_out: frozenset[str] | None,
    started: int | None,
    now: datetime,
    keys: Keys,
) -> Posted:
    """
    Send the next letters of a campaign.

    Each is claimed with its generation before its copy is sent, so letters interrupted in
    between are sent again under the same generation. What interrupts the sending is raised
    after the known outcomes are recorded.
    """
    taken = await store.take_replay(campaign.id, limit=limit, leave_out=leave_out, keys=started)
    if not taken:
        return Posted(0, 0)
    by_mailbox: defaultdict[str, list[ReplayTaken]] = defaultdict(list)
    for one in taken:
        by_mailbox[campaign.to or one.source].append(one)
    sent: list[ReplayTaken] = []
    refused: list[ReplaySettled] = []
    interruption: DeadLetterError | None = None
    for mailbox, letters in by_mailbox.items():
        copies = [copy_of(one, campaign.id, mailbox, now=now, keys=keys) for one in letters]
        done = await send_each(broker.sink(mailbox), copies)
        sent += [letters[place] for place in sorted(done.sent)]
        refused += [_refused(letters[n], why) for n, why in done.refused.items()]
        interruption = interruption or done.interruption
    if sent:
        await store.sent_replay(campaign.id, [one.letter_id for one in sent])
    if refused:
        await store.settle_replays(refused)
    if interruption is not None:
        raise interruption
    size = sum(len(one.message.body) for one in sent)
    return Posted(len(sent), size, refused=len(refused))


def copy_of(
    taken: ReplayTaken, campaign: str, mailbox: str, *, now: datetime, keys: Keys
) -> Message:
    """Return the message that is sent for a letter, signed for its target."""
    lineage = Lineage(letter_id=taken.letter_id, generation=taken.generation, campaign=campaign)
    return sign_lineage(copied(taken.message, lineage, now), mailbox, keys)


class Sending(Struct):
    """The result for each message of a batch, by its place there."""

    sent: set[int]
    refused: dict[int, DeadLetterError]
    interruption: DeadLetterError | None = None  # the others: nobody knows


async def send_each(sink: Sink, messages: Sequence[Message]) -> Sending:
    """
    Send messages as one batch if possible; rejected ones do not stop the others.

    A batch that is rejected as a whole is halved, in order, until the rejected message is
    alone.
    """
    try:
        await sink.send(messages)
    except PartlySent as error:
        return Sending(set(error.sent), dict(error.refused), error.cause)
    except (NotFound, ConfigError) as error:  # so is the whole mailbox
        return Sending(set(), dict.fromkeys(range(len(messages)), error))
    except Refused as error:
        if len(messages) == 1:
            return Sending(set(), {0: error})
        middle = len(messages) // 2
        done = await send_each(sink, messages[:middle])
        if done.interruption is None:
            rest = await send_each(sink, messages[middle:])
            done.sent |= {middle + n for n in rest.sent}
            done.refused |= {middle + n: why for n, why in rest.refused.items()}
            done.interruption = rest.interruption
        return done
    except DeadLetterError as error:
        return Sending(set(), {}, error)
    return Sending(set(range(len(messages))), {})


def _refused(taken: ReplayTaken, error: DeadLetterError) -> ReplaySettled:
    why = cut(redact(plain_line(str(error))), _LONGEST_WHY)
    return ReplaySettled(taken.letter_id, taken.generation, Outcome.REFUSED, why)


_SLICE: Final = 0.1  # seconds' worth sent at once: even for the consumer, cheap for us


class Pace:
    """
    Spreads letters evenly at `rate` per second; without a rate, unlimited.

    Lost time is not made up by a burst.
    """

    def __init__(self, rate: float | None, monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._free_at = monotonic()

    def size(self, most: int) -> int:
        """Return how many letters to send at once."""
        if self._rate is None:
            return most
        return max(1, min(most, int(self._rate * _SLICE)))

    def spend(self, letters: int) -> None:
        """Record that letters were sent."""
        if self._rate is None:
            return
        # Up to one slice behind time is an ordinary hiccup; more is not owed.
        earliest = self._monotonic() - _SLICE
        self._free_at = max(self._free_at, earliest) + letters / self._rate

    def wait(self) -> float:
        """Return the seconds until the next letters may be sent."""
        return max(0.0, self._free_at - self._monotonic())


async def until(stop: asyncio.Event, seconds: float) -> None:
    """Wait that long, or until `stop` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


LOOK: Final = 0.2  # seconds between two looks at outcomes
PATIENCE: Final = 900.0  # seconds without any outcome, until nobody seems to work


class Watch:
    """
    Decides from outcomes whether more letters of a campaign may be sent.

    Only letters sent since it was created count: a campaign that is resumed after it paused
    itself starts with a canary again.
    """

    def __init__(
        self,
        campaign: Campaign,
        look: Callable[[], Awaitable[Campaign]],
        monotonic: Callable[[], float],
        patience: float = PATIENCE,
    ) -> None:
        self.campaign = campaign
        self._patience = patience
        self._care = campaign.care
        self._look = look
        self._monotonic = monotonic
        self._before = campaign.counts
        self._looked_at = self._moved_at = monotonic()
        self._settled = 0
        self._bound = 0.0  # letters out at the end of the step that keys were started in
        self._halt: Halt | None = None
        self.gone = 0  # letters

    def sent(self, letters: int) -> None:
        """Record that letters were sent."""
        self.gone += letters

    def may_start_keys(self, most: int | None, behind: int) -> bool:
        """
        Return whether keys may be started for `most` more letters.

        A step takes whole keys: the next one begins when all letters of the keys begun are
        settled, with `behind` of them unsent, and few enough failed.
        """
        bound = inf if most is None else self.gone + most
        if self._bound and bound > self._bound:
            failed = self._since(Outcome.FAILED)
            settled = self._handled() + failed
            if settled + self._since(Outcome.UNCONFIRMED) < self.gone + behind:
                return False
            self._halt = judge_whole_keys(self._care, settled, failed)
        if self._halt is None:
            self._bound = bound
        return self._halt is None

    async def step(self) -> Step:
        """Return the next step."""
        if self._halt is not None:
            return self._halt
        now = self._monotonic()
        step = self._judged()
        if now - self._looked_at >= LOOK or isinstance(step, Wait):
            self._looked_at = now
            with suppress(Unavailable):  # no news is no reason to begin anew
                self.campaign = await self._look()
            step = self._judged()
        settled = self._handled() + self._since(Outcome.FAILED)
        if settled != self._settled:
            self._settled, self._moved_at = settled, now
        if isinstance(step, Send):
            return step
        if not unsent(self.campaign):
            return Send()  # there is nothing that could wait, or be spared
        if isinstance(step, Halt):
            return step
        if now - self._moved_at > self._patience:
            return Halt(
                f"{step.outcomes:,} of those sent have no outcome after"
                f" {_span(self._patience)}: is a worker running?"
            )
        return step

    async def key_step(self) -> Step:
        """Return the next step if nothing can be sent before a letter of a key is settled."""
        await self.step()
        self.campaign = await self._look()
        waiting = self.campaign.counts.get(Outcome.WAITING, 0)
        if self._monotonic() - self._moved_at > self._patience:
            return Halt(
                f"{waiting:,} wait for the letter before them of their key, and none"
                f" of those sent has an outcome after {_span(self._patience)}:"
                " is a worker running?"
            )
        return Wait(unsettled(self.campaign))

    def _judged(self) -> Step:
        handled = self._handled()
        failed = self._since(Outcome.FAILED)
        # Another letter goes in the place of one that nobody waits for any more.
        gone = max(0, self.gone - self._since(Outcome.UNCONFIRMED))
        return next_step(self._care, gone, handled, failed)

    def _handled(self) -> int:
        # A presumed one that is confirmed later is counted once, and so is its loss.
        return self._since(Outcome.CONFIRMED) + self._since(Outcome.PRESUMED)

    def _since(self, outcome: Outcome) -> int:
        counts = self.campaign.counts
        return counts.get(outcome, 0) - self._before.get(outcome, 0)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
