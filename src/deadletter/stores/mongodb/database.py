"""The database: turns of writers, reads on snapshots, and retries."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from pymongo import AsyncMongoClient, ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import validate_options

from deadletter.core.audit import seal
from deadletter.core.errors import Unavailable
from deadletter.core.letter import OPEN, AuditEntry, State
from deadletter.core.seals import MASK, PLAIN, Marks, Sealing
from deadletter.core.text import stored
from deadletter.kit import EngineTasks
from deadletter.ports.features import Dice

from .address import ERRORS, Address, is_passing, is_unsure
from .audit import document_of
from .schema import OFFICE, SAFELY, Collections, Document, collections

# Turns whose owner is silent.
#
# A process that is killed in its turn leaves a transaction behind, which the server ends
# after a minute only. The next writer ends it earlier. If the owner was only frozen, it
# finds nothing changed and takes another turn.

APP: Final = "deadletter"  # the name of our connections on the server
SILENT: Final = 5.0  # seconds without a statement

_IDLE: Final = {"allUsers": False, "idleSessions": True, "idleConnections": False}


async def end_silent(client: AsyncMongoClient[dict[str, Any]]) -> int:
    """End the transactions of silent owners; return their number."""
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": _IDLE},
        {
            "$match": {
                "type": "idleSession",
                "appName": APP,
                "transaction.timeInactiveMicros": {"$gt": int(SILENT * 1_000_000)},
            }
        },
    ]
    found = await (await client.admin.aggregate(pipeline)).to_list()
    sessions = [{"id": one["lsid"]["id"]} for one in found]
    if sessions:
        await client.admin.command("killSessions", sessions)
    return len(sessions)


# One writer's turn: a transaction that has the whole office to itself.
#
# Every change of letters begins by counting its turn in one document. Of two writers at
# the same time, the later one conflicts at once and tries again, so what a turn reads
# stays true until it ends. Its changes are counted and audited at its end, in the same
# transaction, so that nobody has to count letters to show a number.

Session: TypeAlias = AsyncClientSession


class Turn:
    """A transaction in progress; `numbers` are the office's, written at the end."""

    def __init__(
        self, there: Collections, session: Session, office: Document, sealing: Sealing = PLAIN
    ) -> None:
        self.there = there
        self.session = session
        self.sealing = sealing
        self.numbers: Document = office
        self._acts: list[AuditEntry] = []
        self._by_group: defaultdict[str, Counter[State]] = defaultdict(Counter)
        self._by_source: defaultdict[str, Counter[State]] = defaultdict(Counter)
        self._deaths: dict[str, tuple[Document, int]] = {}
        self._last: list[Callable[[], Awaitable[None]]] = []

    def at_end(self, write: Callable[[], Awaitable[None]]) -> None:
        """Call `write` when the turn ends."""
        self._last.append(write)

    def next_seq(self) -> int:
        """Return a number that nothing else has or will have."""
        self.numbers["seq"] += 1
        return int(self.numbers["seq"])

    def count(self, what: str, n: int) -> None:
        """Count `n` more letters as kept, purged or expired."""
        self.numbers[what] += n

    def note_letters(self, letters: Mapping[str, int]) -> None:
        """Add letters to the sum of those that are there, or take some off."""
        if (marks := self._marks()) is not None:
            total = self.numbers["letter_marks"] + marks.texts(letters)
            self.numbers["letter_marks"] = total & MASK

    def note_deaths(self, deaths: Mapping[str, int]) -> None:
        """Note how many deaths more or less groups count, which `verify` goes by."""
        if (marks := self._marks()) is not None:
            self.numbers["deaths"] += sum(deaths.values())
            total = self.numbers["death_marks"] + marks.texts(deaths)
            self.numbers["death_marks"] = total & MASK

    def _marks(self) -> Marks | None:
        """Return the marks of the office's sums; None where nobody has begun any."""
        numbers = self.numbers
        if "marks_key" not in numbers:
            return None
        if not (numbers["letter_marks"] or numbers["deaths"]):
            numbers["marks_key"] = self.sealing.key_id
        return self.sealing.marks(numbers["marks_key"])

    def shift(self, source: str, fingerprint: str, changes: Mapping[State, int]) -> None:
        """Add to the numbers of letters of a source and a group, by state."""
        for state, n in changes.items():
            self._by_group[fingerprint][state] += n
            self._by_source[source][state] += n

    def died(self, fingerprint: str, group: Document, n: int) -> None:
        """Count `n` more deaths of a group, and replace its fields."""
        self._deaths[fingerprint] = group, n

    def audit(self, acts: Iterable[AuditEntry]) -> None:
        """Add acts to the audit."""
        self._acts += acts

    def drop_group(self, fingerprint: str) -> None:
        """Count nothing in a group that is deleted."""
        self._by_group.pop(fingerprint, None)

    async def end(self) -> None:
        """Write the counts and the audit."""
        for write in self._last:
            await write()
        groups = [
            _change(name, self._by_group[name], *self._deaths.get(name, ({}, 0)))
            for name in dict.fromkeys([*self._deaths, *self._by_group])
        ]
        if groups:
            await self.there.groups.bulk_write(groups, session=self.session)
        sources = [
            UpdateOne({"_id": stored(name)}, {"$inc": _states(states)}, upsert=True)
            for name, states in self._by_source.items()
        ]
        if sources:
            await self.there.sources.bulk_write(sources, session=self.session)
        if self._acts:
            await self._append(self._acts)
        await self.there.office.replace_one({"_id": OFFICE}, self.numbers, session=self.session)

    async def _append(self, acts: Iterable[AuditEntry]) -> None:
        numbers = self.numbers
        entries = seal(
            acts, seq=numbers["audit_seq"], previous=numbers["audit_hash"], sealing=self.sealing
        )
        await self.there.audit.insert_many(
            [document_of(entry) for entry in entries], session=self.session
        )
        numbers["audit_seq"], numbers["audit_hash"] = entries[-1].seq, entries[-1].hash


async def begin(there: Collections, session: Session, sealing: Sealing = PLAIN) -> Turn:
    """Take a turn; conflicts with another writer who has it."""
    office = await there.office.find_one_and_update(
        {"_id": OFFICE},
        {"$inc": {"turn": 1}},
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    if office is None:
        raise Unavailable(
            "the collections of deadletter are gone: restart this process to make them anew"
        )
    return Turn(there, session, office, sealing)


def _change(name: str, states: Counter[State], group: Document, deaths: int) -> UpdateOne:
    opened = sum(n for state, n in states.items() if state in OPEN)
    more = {**_states(states), "open": opened, "total": deaths}
    changes: Document = {"$inc": more, "$set": group} if group else {"$inc": more}
    return UpdateOne({"_id": stored(name)}, changes, upsert=True)


def _states(states: Counter[State]) -> dict[str, int]:
    return {f"states.{state}": n for state, n in states.items()}


T = TypeVar("T")
Client: TypeAlias = AsyncMongoClient[Document]
Work: TypeAlias = Callable[[Turn], Awaitable[T]]
Look: TypeAlias = Callable[[Collections, Session], Awaitable[T]]

_PATIENCE: Final = 4 * SILENT  # seconds to wait for other writers
_SHORT: Final = 10.0  # seconds for what takes milliseconds
_SLOWEST: Final = 1_000_000  # bytes per second, on the slowest network
_FAREWELL: Final = 2.0  # seconds to give up a turn
_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.2
_SNAPSHOT: Final = ReadConcern("snapshot")

LONGEST: Final = 60.0  # seconds for any call, with all its retries

# Unless the URL says otherwise; in milliseconds.
_DEFAULTS: Final[dict[str, Any]] = {
    "serverSelectionTimeoutMS": 5_000,
    "connectTimeoutMS": 5_000,
    "socketTimeoutMS": 60_000,
}


def connect(address: Address) -> Client:
    """Return a client for one event loop; it connects with the first call."""
    given = validate_options(address.options, warn=False)
    defaults = {k: v for k, v in _DEFAULTS.items() if k.lower() not in given}
    return AsyncMongoClient(address.url, tz_aware=True, appname=APP, **defaults)


def limit_for(size: int) -> float:
    """Return the timeout of a turn that carries `size` bytes, in seconds."""
    return _PATIENCE + size / _SLOWEST


class Database:
    """
    One MongoDB database, for one event loop.

    Every call has a deadline, `within` seconds from its start, and runs to its end, see
    `EngineTasks`.
    """

    def __init__(self, address: Address, client: Client, dice: Dice) -> None:
        self.address = address
        self._client = client
        self._dice = dice
        self.sealing = Sealing()  # gets its keys once the office is open
        self.there = collections(client[address.database], address.prefix)
        self._mine = asyncio.Lock()  # turns of this process wait instead of conflicting
        self._tasks = EngineTasks()
        self.start = self._tasks.run_to_end

    async def close(self) -> None:
        """Finish the calls that are in progress and close all connections. Idempotent."""
        await self._tasks.close(_SHORT)
        await self._client.close()

    async def write(self, work: Work[T], *, within: float = LONGEST) -> T:
        """Run `work` in a turn of its own; return once it is durable."""
        self._tasks.check_open()
        return await self.start(self._limited(self._in_turn(work), within))

    async def read(self, look: Look[T], *, within: float = LONGEST) -> T:
        """Read the office as it was at one moment."""
        self._tasks.check_open()
        return await self.start(self._limited(self._looked(look), within))

    async def search(self, look: Look[T]) -> T:
        """Read like `read` does; the search ends when the caller stops waiting."""
        return await self._tasks.run(self._looked(look))

    async def plainly(self, work: Callable[[Collections], Awaitable[T]]) -> T:
        """Run `work` without a transaction: each of its operations stands for itself."""
        self._tasks.check_open()
        doing = self._translated(work(self.there))
        return await self.start(self._limited(doing, _SHORT))

    async def _limited(self, work: Awaitable[T], within: float) -> T:
        """Wait with a deadline; the library closes a connection that misses it."""
        deadline = asyncio.timeout(within)
        try:
            async with deadline:
                return await work
        except TimeoutError as error:
            raise Unavailable(f"{self.address.name}: no answer within {within:g} s") from error

    async def _in_turn(self, work: Work[T]) -> T:
        deadline = _now() + _PATIENCE
        try:
            async with asyncio.timeout_at(deadline):
                await self._mine.acquire()
        except TimeoutError:
            raise Unavailable(
                f"{self.address.name}: other writers were in the way for {_PATIENCE:g} s: try again"
            ) from None
        try:
            return await self._translated(self._retried(work, deadline))
        finally:
            self._mine.release()

    async def _looked(self, look: Look[T]) -> T:
        async def looked() -> T:
            async with self._client.start_session(snapshot=True) as session:
                return await look(self.there, session)

        return await self._translated(looked())

    async def _translated(self, work: Awaitable[T]) -> T:
        with ERRORS.translated(self.address.name):
            return await work

    async def _retried(self, work: Work[T], deadline: float) -> T:
        patience = _now() + SILENT
        pause = _PAUSE
        async with self._client.start_session() as session:
            while True:
                try:
                    return await self._once(session, work, deadline)
                except PyMongoError as error:
                    if not is_passing(error) or _now() > deadline:
                        raise
                if _now() > patience:
                    patience = _now() + 1.0
                    with suppress(PyMongoError):  # then the server ends them after a minute
                        await end_silent(self._client)
                # The random pause keeps processes out of step.
                await asyncio.sleep(pause * self._dice.draw())
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _once(self, session: Session, work: Work[T], deadline: float) -> T:
        await session.start_transaction(_SNAPSHOT, SAFELY)
        try:
            turn = await begin(self.there, session, self.sealing)
            result = await work(turn)
            await turn.end()
        except BaseException:
            with suppress(PyMongoError, TimeoutError):  # the server ends it later
                async with asyncio.timeout(_FAREWELL):
                    await session.abort_transaction()
            raise
        while True:
            try:
                await session.commit_transaction()
            except PyMongoError as error:
                if not is_unsure(error) or _now() > deadline:
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                return result


def _now() -> float:
    return asyncio.get_running_loop().time()
