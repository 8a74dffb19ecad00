"""
What is sent in a simulated world, and how its handlers behave.

Every run of a handler is written to a log outside of the system under test: what
it says happened is compared with what did.
"""

import asyncio
from collections.abc import Sequence
from contextvars import Context
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Final

from msgspec import Struct

from deadletter.core.errors import Malformed
from deadletter.core.message import Delivery, Headers, Message
from deadletter.testing.virtual_time import VirtualClock, this_process
from simulation.faulty import never

MAILBOXES: Final = ("work", "more")
LEASE: Final = 5.0  # seconds; what is slow is so in terms of this
MAX_ATTEMPTS: Final = 4
TIME_LIMIT: Final = 4 * LEASE
_TAKES: Final = (0.0, 0.01, 0.2, 1.0)
_HEADERS: Final[tuple[Headers, ...]] = (
    (),
    (("x-odd", b"\x00\xff"), ("x-odd", "é".encode())),
    (("", b""),),
)


class Kind(StrEnum):
    """How the handler of a message behaves."""

    OK = "ok"
    SLOW = "slow"  # takes three leases
    FLAKY = "flaky"  # fails a few times first
    HOPELESS = "hopeless"  # fails every time
    BAD = "bad"  # an error that is not worth a retry
    LIAR = "liar"  # does its work, then raises
    POISON = "poison"  # kills its process
    HOG = "hog"  # holds up its whole process for longer than a lease
    NEEDY = "needy"  # works while the downstream is up
    MOODY = "moody"  # never worth a retry, and yet it works the second time
    STUCK = "stuck"  # never comes to an end
    FLEETING = "fleeting"  # fails, and expires before its attempts are used up


class Parcel(Struct, frozen=True, kw_only=True):
    """A message to be sent, and how its handler behaves."""

    id: str
    kind: Kind
    mailbox: str = MAILBOXES[0]
    at: float = 0.0  # when it is sent
    copies: int = 1  # a producer who was not sure sends twice
    times: int = 0  # how often a flaky one fails; how greedy a hog is
    takes: float = 0.0  # seconds
    heals: bool = False  # its replayed copies work
    body: bytes = b""
    headers: Headers = ()

    def message(self, clock: VirtualClock) -> Message:
        """What is sent."""
        now = clock.now()
        fleeting = self.kind is Kind.FLEETING
        return Message(
            id=self.id,
            body=self.body,
            headers=self.headers,
            sent_at=now,
            expires_at=now + timedelta(seconds=2.0) if fleeting else None,
        )


class Run(Struct, kw_only=True):
    """One run of a handler."""

    id: str
    generation: int
    charged: int
    suspect: bool
    process: str
    began: float
    ended: float | None = None  # None: it never came to an end
    how: str = ""  # done, raised, cancelled


class Hiccup(Exception):
    """An error nobody has heard of: it is tried again."""


class Effects:
    """Every run of a handler, written down outside of the system."""

    def __init__(self, parcels: Sequence[Parcel]) -> None:
        self.parcels = {parcel.id: parcel for parcel in parcels}
        self.runs: list[Run] = []
        self.mangled: list[str] = []
        self.strangers: list[str] = []
        self.downstream_is_up = True

    async def handle(self, delivery: Delivery) -> None:
        """Do with a delivery what its parcel says."""
        loop = asyncio.get_running_loop()
        message, process = delivery.message, this_process()
        parcel = self.parcels.get(message.id)
        if parcel is None:
            self.strangers.append(message.id)
            return
        if (message.body, message.headers) != (parcel.body, parcel.headers):
            self.mangled.append(message.id)
        run = Run(
            id=message.id,
            generation=message.generation,
            charged=delivery.charged,
            suspect=delivery.suspect,
            process=process.name if process else "",
            began=loop.time(),
        )
        self.runs.append(run)
        try:
            await self._behave(parcel, message)
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            run.how = "cancelled" if cancelled else "raised"
            raise
        else:
            run.how = "done"
        finally:
            run.ended = loop.time()

    def of(self, id: str, generation: int = 0) -> list[Run]:
        """The runs for one message."""
        return [r for r in self.runs if r.id == id and r.generation == generation]

    async def _behave(self, parcel: Parcel, message: Message) -> None:
        await asyncio.sleep(parcel.takes)
        if parcel.heals and message.generation:
            return
        runs = len(self.of(message.id))
        match parcel.kind:
            case Kind.HOPELESS | Kind.FLEETING | Kind.LIAR:
                raise Hiccup(f"{message.id} says it did nothing")
            case Kind.FLAKY if runs <= parcel.times:
                raise Hiccup(f"{message.id} is not in the mood")
            case Kind.BAD:
                raise Malformed(f"{message.id} will never do")
            case Kind.MOODY if runs == 1:
                raise Malformed(f"{message.id} will never do, or so it seems")
            case Kind.NEEDY if not self.downstream_is_up:
                raise ConnectionRefusedError("the downstream is down")
            case Kind.POISON:
                await _die()
            case Kind.STUCK:
                await never()
            case Kind.HOG:
                # Just over a lease, or twice as long: both ends of the race.
                await _hog(LEASE * (1.0 + 0.05 * parcel.times**3))


async def _die() -> None:
    process = this_process()
    if process is not None:
        process.kill()
    await never()


async def _hog(seconds: float) -> None:
    process = this_process()
    if process is None:
        return
    process.pause()
    # Not in the process's own context, where nothing runs until then.
    loop = asyncio.get_running_loop()
    loop.call_later(seconds, process.resume, context=Context())
    await asyncio.sleep(0)


def draw_parcels(
    random: Random, kinds: Sequence[Kind], count: int, *, until: float, mailboxes: int = 1
) -> tuple[Parcel, ...]:
    """So many parcels of these kinds, sent over the first `until` seconds."""
    return tuple(
        Parcel(
            id=f"m{number:03}",
            kind=(kind := random.choice(kinds)),
            mailbox=random.choice(MAILBOXES[:mailboxes]),
            at=random.choice([0.0, random.uniform(0.0, until)]),
            times=random.randint(1, MAX_ATTEMPTS - 1),
            takes=3 * LEASE if kind is Kind.SLOW else random.choice(_TAKES),
            body=random.randbytes(random.choice([0, 3, 40])),
            headers=random.choice(_HEADERS),
        )
        for number in range(count)
    )
