"""
An engine in one file: mailboxes kept in a JSON notebook.

    App("notebook:///orders.json", office="sqlite:///office.db")

For one process and few messages, because the whole notebook is written anew at
every change. It keeps no letters, so it is paired with an office that does.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct, field, structs

from deadletter.core.errors import ConfigError, Conflict, NotFound, Refused, Unavailable
from deadletter.core.message import Delivery, Message, as_unicode, restored
from deadletter.core.topology import check_deletion, check_name, validate
from deadletter.kit import ErrorTable, NoOptions, UrlForm
from deadletter.ports import (
    Acked,
    AtomicBurial,
    AtomicReplay,
    Broker,
    Clock,
    Dice,
    Durability,
    Fate,
    Features,
    Ledger,
    LetterStore,
    QueueInfo,
    QueueOptions,
    Released,
    Settlement,
    Swept,
)

# 1. Tell the truth: what is claimed here, the contract tests hold you to.
FEATURES = Features(
    engine="notebook",
    durability=Durability.KILL_SAFE,  # it is not synced to the disk
    shared=False,
    keeps_letters=False,
    keeps_ledger=False,
)
# 2. The client's errors as ours: worth trying again, or not.
ERRORS = ErrorTable(
    "the notebook",
    {
        OSError: (Unavailable, "the notebook cannot be read or written"),
        ValueError: (Refused, "the notebook is not one of ours"),
    },
)

Found: TypeAlias = tuple[list[Delivery], float]  # ...or seconds until there is some


class Entry(Struct, kw_only=True):
    """A message, and how it stands."""

    seq: int
    message: Message
    due: datetime
    token: int = 0  # of whoever has claimed it; 0 is nobody
    leased: datetime | None = None
    attempts: int = 0
    spared: int = 0
    suspect: bool = False
    alone: bool = False  # claimed as the only one
    first_at: datetime | None = None
    history: str = ""

    def claim(self, token: int, until: datetime, *, alone: bool) -> None:
        self.token, self.leased, self.alone = token, until, alone

    def let_go(self) -> None:
        self.token, self.leased, self.alone = 0, None, False

    def delivery(self, mailbox: str) -> Delivery:
        return Delivery(
            message=restored(self.message),
            mailbox=mailbox,
            attempt=self.attempts,
            spared=self.spared,
            suspect=self.suspect,
            first_received_at=self.first_at,
            history=self.history,
            receipt=(self.seq, self.token),
        )


class Leaf(Struct, kw_only=True):
    """A mailbox."""

    options: QueueOptions
    entries: dict[int, Entry] = field(default_factory=dict)
    tally: dict[str, int] = field(default_factory=dict)
    is_gone: bool = False  # deleted; its tally stays

    def count(self, what: str, by: int = 1) -> None:
        self.tally[what] = self.tally.get(what, 0) + by


class Pages(Struct):
    """All that is in the file."""

    last: int = 0  # number of the latest message or claim
    leaves: dict[str, Leaf] = field(default_factory=dict)

    def next(self) -> int:
        self.last += 1
        return self.last

    def leaf(self, name: str) -> Leaf:
        """The mailbox of that name, made if it is not there."""
        leaf = self.leaves.setdefault(name, Leaf(options=QueueOptions(name=name)))
        leaf.is_gone = False
        return leaf

    def existing(self) -> dict[str, QueueOptions]:
        return {n: leaf.options for n, leaf in self.leaves.items() if not leaf.is_gone}


class Notebook:
    """The file, and a bell that rings whenever it has changed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.clock = clock
        self.bell = asyncio.Event()
        self._path = path
        self.pages = self._read()

    @contextmanager
    def change(self) -> Iterator[Pages]:
        """Change the pages: all of it and durably, or nothing."""
        try:
            with ERRORS.translated():
                yield self.pages
                draft = self._path.with_name(f"{self._path.name}.new")
                draft.write_bytes(msgspec.json.encode(self.pages))
                draft.replace(self._path)
        except BaseException:
            self.pages = self._read()  # what is in the file is what is true
            raise
        bell, self.bell = self.bell, asyncio.Event()
        bell.set()

    def _read(self) -> Pages:
        with ERRORS.translated():
            if not self._path.exists():
                return Pages()
            return msgspec.json.decode(self._path.read_bytes(), type=Pages)


# 3. Four verbs: three of a source, one of a sink. Batches in, batches out.
class NotebookMailbox:
    """One mailbox, as source and as sink."""

    features = FEATURES

    def __init__(self, notebook: Notebook, mailbox: str) -> None:
        self.mailbox, self._notebook = mailbox, notebook

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Claim up to `limit`, waiting up to `wait` seconds for the first."""
        limit = min(limit, 1) if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while limit > 0:
            bell = self._notebook.bell
            found, rest = self._claim(limit, lease, alone=alone)
            left = deadline - loop.time()
            if found or left <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, rest)):
                    await bell.wait()
        return []

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none."""
        now = self._notebook.clock.now()
        with self._notebook.change() as pages:
            leaf = pages.leaf(self.mailbox)
            for given in messages:
                message = mortal(as_unicode(given), now, leaf.options.expire_after)
                due = due_at(message, now, delay)
                seq = pages.next()
                leaf.entries[seq] = Entry(seq=seq, message=message, due=due)
            leaf.count("sent", len(messages))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Forget or hand back; says for each if it was still ours."""
        with self._notebook.change() as pages:
            return [self._settle(pages, settlement) for settlement in settlements]

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Keep deliveries ours for `lease` seconds from now; says which still are."""
        until = self._notebook.clock.now() + timedelta(seconds=lease)
        with self._notebook.change() as pages:
            ours = [self._ours(pages, delivery) for delivery in deliveries]
            for entry in filter(None, ours):
                entry.leased = until
        return [entry is not None for entry in ours]

    def _claim(self, limit: int, lease: float, *, alone: bool) -> Found:
        """What is due, claimed and counted in one step."""
        now = self._notebook.clock.now()
        entries = self._notebook.pages.leaf(self.mailbox).entries.values()
        free = [e for e in entries if not e.token and e.suspect == alone]
        due = sorted((e for e in free if e.due <= now), key=lambda e: (e.due, e.seq))
        if not due:
            first = min((e.due for e in free), default=now + timedelta(days=1))
            return [], (first - now).total_seconds()
        with self._notebook.change() as pages:
            token = pages.next()
            for entry in due[:limit]:
                entry.claim(token, now + timedelta(seconds=lease), alone=alone)
                entry.attempts += 1
                entry.first_at = entry.first_at or now
        return [entry.delivery(self.mailbox) for entry in due[:limit]], 0.0

    def _ours(self, pages: Pages, given: Delivery) -> Entry | None:
        seq, token = given.receipt
        entry = pages.leaf(self.mailbox).entries.get(seq)
        if entry is None or entry.token != token or entry.leased is None:
            return None
        return entry if entry.leased > self._notebook.clock.now() else None

    def _settle(self, pages: Pages, settlement: Settlement) -> bool:
        entry = self._ours(pages, settlement.delivery)
        if entry is None:
            return False
        leaf = pages.leaf(self.mailbox)
        match settlement:
            case Acked(_, fate):
                del leaf.entries[entry.seq]
                leaf.count(fate)
            case Released(_, delay, history, charged):
                entry.due = due_at(entry.message, self._notebook.clock.now(), delay)
                entry.spared += not charged
                # Run, and its worker lives: proven. Handed back unrun: not.
                entry.suspect &= not charged and history is None
                entry.history = entry.history if history is None else history
                entry.let_go()
        return True


# 4. Mailboxes themselves. The rules about dead queues are in `core.topology`.
class NotebookBroker:
    """The mailboxes of one notebook."""

    features = FEATURES

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook

    def source(self, mailbox: str) -> NotebookMailbox:
        check_name(mailbox)
        return NotebookMailbox(self._notebook, mailbox)

    sink = source

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        with self._notebook.change() as pages:
            existing = pages.existing()
            validate(options, existing)
            if existing.get(options.name, options) != options:
                raise Conflict(f"queue {options.name} exists: update it instead")
            pages.leaf(options.name).options = options

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""
        with self._notebook.change() as pages:
            if options.name not in pages.existing():
                raise NotFound(f"there is no queue {options.name!a}: create it first")
            validate(options, pages.existing())
            pages.leaf(options.name).options = options

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""
        with self._notebook.change() as pages:
            if name not in pages.existing():
                raise NotFound(f"there is no queue {name!a}")
            for user in check_deletion(name, pages.existing(), force=force):
                leaf = pages.leaf(user)
                leaf.options = structs.replace(leaf.options, dead_queue=None)
            leaf = pages.leaf(name)
            purged = len(leaf.entries)
            leaf.entries.clear()
            leaf.count(Fate.PURGED, purged)
            leaf.options, leaf.is_gone = QueueOptions(name=name), True
        return purged

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        pages, now = self._notebook.pages, self._notebook.clock.now()
        return [info(pages.leaves[name], now) for name in sorted(pages.existing())]

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        return None  # mailboxes here have no limits of their own

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Take back what lost workers held, and claim what is past saving."""
        now = self._notebook.clock.now()
        until = now + timedelta(seconds=lease)
        lost, waiting = 0, set()
        doomed: list[Delivery] = []
        with self._notebook.change() as pages:
            token = pages.next()
            dead_queues = {options.dead_queue for options in pages.existing().values()}
            for name, leaf in pages.leaves.items():
                for entry in leaf.entries.values():
                    if entry.leased is not None and entry.leased <= now:
                        lost += 1
                        entry.spared += not entry.alone  # perhaps a neighbour's fault
                        entry.suspect = True
                        entry.let_go()
                    if entry.token:
                        continue
                    if name not in dead_queues and is_doomed(entry, leaf, now):
                        if len(doomed) < limit:
                            entry.claim(token, until, alone=True)
                            doomed.append(entry.delivery(name))
                    elif entry.suspect and entry.due <= now:
                        waiting.add(name)
        return Swept(lost, frozenset(waiting), tuple(doomed))


def mortal(message: Message, now: datetime, life: float | None) -> Message:
    """The message with the expiry its mailbox gives it, if it has none itself."""
    if message.expires_at is not None or life is None:
        return message
    return structs.replace(message, expires_at=now + timedelta(seconds=life))


def due_at(message: Message, now: datetime, delay: float) -> datetime:
    """When it can be received: at its expiry at the latest, for somebody to notice."""
    due = now + timedelta(seconds=delay)
    return due if message.expires_at is None else min(due, message.expires_at)


def is_doomed(entry: Entry, leaf: Leaf, now: datetime) -> bool:
    """Whether nobody should try it any more."""
    limit, charged = leaf.options.max_attempts, entry.attempts - entry.spared
    end = entry.message.expires_at
    return (end is not None and end <= now) or (entry.suspect and 0 < limit <= charged)


def info(leaf: Leaf, now: datetime) -> QueueInfo:
    free = [entry for entry in leaf.entries.values() if not entry.token]
    line = sorted((e for e in free if not e.suspect), key=lambda e: (e.due, e.seq))
    ready = sum(entry.due <= now for entry in line)
    return QueueInfo(
        options=leaf.options,
        ready=ready,
        delayed=len(line) - ready,
        claimed=len(leaf.entries) - len(free),
        suspects=len(free) - len(line),
        oldest_at=line[0].message.sent_at if line else None,
        tally={"sent": 0, **leaf.tally},
    )


# 5. What the URL opens.
class NotebookEngine:
    """Mailboxes in a notebook; no office and no ledger."""

    features = FEATURES
    letters: LetterStore | None = None
    ledger: Ledger | None = None
    atomic_burial: AtomicBurial | None = None
    atomic_replay: AtomicReplay | None = None

    def __init__(self, path: Path, clock: Clock) -> None:
        self.broker: Broker = NotebookBroker(Notebook(path, clock))

    async def close(self) -> None:
        """Everything is in the file already."""


URL = UrlForm(
    "notebook", {"notebook": None}, NoOptions, example="notebook:///a.json", default_host=None
)


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> NotebookEngine:
    """Open the notebook a URL names, or begin it."""
    path = URL.read(url).path.removeprefix("/")
    if not path:
        raise ConfigError("the notebook URL names no file: write notebook:///name.json")
    return NotebookEngine(Path(path), clock)
