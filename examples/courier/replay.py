"""
Sends dead events back to the main queue, the oldest first.

    python -m courier.replay --limit 20
    python -m courier.replay --limit 20 --where 'code:VALIDATION since:2d' --dry-run

Pending letters are first marked as reviewed, with the name and the reason, then sent. A copy
is the event as it was queued, byte for byte, under a new generation of its key: the worker's
ledger lets it through once more. Events that were processed meanwhile, because the courier sent
them again, are left alone and do not count for the limit.
"""

import argparse
import asyncio
import getpass
import sys
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from deadletter import DeadLetterError, open_engine
from deadletter.core.campaign import BLOCKED, Campaign, Outcome, Verdict
from deadletter.core.letter import By
from deadletter.office.batches import whole_letters
from deadletter.office.letters import Letters
from deadletter.office.preflight import Preflight
from deadletter.office.replay import Replay
from deadletter.office.replay_verdicts import CAP
from deadletter.ports import Engine, LetterStore
from deadletter.system import SystemClock, SystemDice

from .settings import MAIN, Settings, of_this_process

_LEFT_ALONE = BLOCKED | {Verdict.PROCESSED}


class Wish(Struct, frozen=True, kw_only=True):
    """The letters to send, and how."""

    limit: int
    where: str = ""
    by: By
    rate: float | None = None
    wait: float = 0.0
    dry_run: bool = False

    @property
    def query(self) -> str:
        chosen = f"source:{MAIN} is:[pending,reviewed]"
        return f"{chosen} ({self.where})" if self.where.strip() else chosen


class Sent(Struct, frozen=True, kw_only=True):
    """The result of a replay, or of a dry run."""

    verdicts: dict[Verdict, int]
    ids: tuple[str, ...] = ()  # letters that go, or would
    campaign: Campaign | None = None


class Desk:
    """Access to letters and to the queue that they go back to."""

    def __init__(self, engine: Engine) -> None:
        assert engine.letters is not None  # an engine without is never opened alone
        self._engine = engine
        self._store: LetterStore = engine.letters
        self._clock = SystemClock()
        self._letters = Letters(self._store, self._clock)
        self.sender = Replay(self._store, engine.broker, self._clock, SystemDice(), engine.ledger)

    async def replay(self, wish: Wish) -> Sent:
        """Choose, judge, mark as reviewed, send; wait for outcomes if asked to."""
        found = await self._letters.freeze(wish.query)
        going, verdicts = await self._choose(await self._store.sent_order(found), wish.limit)
        if wish.dry_run or not going:
            return Sent(verdicts=verdicts, ids=tuple(going))
        await self._letters.review(going, wish.by)
        begun = await self.sender.begin(going, wish.by, query=wish.query, rate=wish.rate)
        await self.sender.run(begun.id)
        ended = await self.sender.wait_confirmed(begun.id, timeout=wish.wait)
        return Sent(verdicts=verdicts, ids=tuple(going), campaign=ended)

    async def _choose(self, ids: Sequence[str], limit: int) -> tuple[list[str], Counter[Verdict]]:
        """Return the first letters that may be sent, and the verdicts on all that were judged."""
        queues = await self._engine.broker.queues()
        preflight = Preflight(
            now=self._clock.now(),
            cap=CAP,
            to=None,
            mailboxes=frozenset(queue.options.name for queue in queues),
            ledger=self._engine.ledger,
        )
        going: list[str] = []
        verdicts: Counter[Verdict] = Counter()
        async for letters in whole_letters(self._store, ids):
            judged = await preflight.judge(letters)
            for letter, verdict in zip(letters, judged, strict=True):
                if len(going) == limit:
                    return going, verdicts
                verdicts[verdict] += 1
                if verdict not in _LEFT_ALONE:
                    going.append(letter.id)
        return going, verdicts


async def replay(settings: Settings, wish: Wish) -> Sent:
    """Replay letters on the queue and the office of these settings."""
    engine = await open_engine(settings.queue_url, office=settings.office_url)
    try:
        return await Desk(engine).replay(wish)
    finally:
        await engine.close()


def told(wish: Wish, sent: Sent) -> list[str]:
    """Return the result in words."""
    if not sent.verdicts:
        return ["No dead event matches."]
    left = [(v, n) for v, n in sent.verdicts.items() if v in _LEFT_ALONE]
    lines = [f"{count} left alone: {verdict}" for verdict, count in left]
    many = f"{len(sent.ids)} dead event{'s' * (len(sent.ids) != 1)}"
    if sent.campaign is None:
        return [*lines, f"{many} would go to {MAIN}." if wish.dry_run else "None sent."]
    lines.append(f"{many} sent to {MAIN}, replay {sent.campaign.id}.")
    counts = sent.campaign.counts
    lines += [f"{counts[one]} {one}" for one in Outcome if counts.get(one)]
    return lines


def parsed(arguments: Sequence[str]) -> Wish:
    """Return the wish of a command line."""
    parser = argparse.ArgumentParser(prog="courier.replay", allow_abbrev=False)
    parser.add_argument("--limit", type=_count, required=True, metavar="N")
    parser.add_argument("--where", default="", help="a search, as for `dlq list`")
    parser.add_argument("--dry-run", action="store_true", help="send nothing")
    parser.add_argument("--rate", type=_positive, help="events a second")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds for outcomes")
    parser.add_argument("--reason", default="replayed by hand", help="for the audit")
    parser.add_argument("--actor", default=getpass.getuser())
    told = parser.parse_args(arguments)
    return Wish(
        limit=told.limit,
        where=told.where,
        by=By(told.actor, told.reason),
        rate=told.rate,
        wait=told.wait,
        dry_run=told.dry_run,
    )


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _positive(text: str) -> float:
    if not (number := float(text)) > 0:
        raise argparse.ArgumentTypeError("more than 0")
    return number


def main() -> int:
    """Run the command; return 0, 1 after an error, or 2 for a wrong command line."""
    wish = parsed(sys.argv[1:])
    settings, _ = of_this_process()
    try:
        sent = asyncio.run(replay(settings, wish))
    except DeadLetterError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(told(wish, sent)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
