"""Checks of an engine, as data: the subject, its health, and advice."""

import platform
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import LONG_WAIT, Outcome, together
from deadletter.core.errors import BackendError, DeadLetterError
from deadletter.core.grouping import OVERFLOW
from deadletter.core.letter import State
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.signing import Keys
from deadletter.core.text import format_duration
from deadletter.ports import (
    Broker,
    Clock,
    Durability,
    Engine,
    LetterStore,
    LocksFile,
    OperatorLimits,
    QueueInfo,
    Timed,
)

from .letters import Letters
from .mailboxes import list_outages, unworked
from .stats import waiting

# Offices that share a broker but not their keys, as far as one of them can see.
# A copy that is signed with a key of ours only is a new message to the workers of another
# office: they report no outcome to us, and their failures become other letters.

SILENT: Final = timedelta(days=1)  # without any news of a copy
_MOST: Final = 200  # letters that are looked at
_REPLAYING: Final = Term("is", Op.IS, (State.REPLAYING,))


async def silent_copies(store: LetterStore, now: datetime) -> int:
    """Count replayed copies without any reported outcome, up to a limit."""
    page = await store.find(_REPLAYING, limit=_MOST)
    items = await store.replays([head.id for head in page.heads])
    latest = {item.letter_id: item for item in items}
    return sum(
        item.outcome is Outcome.SENT and item.sent_at is not None and now - item.sent_at > SILENT
        for item in latest.values()
    )


def describe(keys: Keys, silent: int) -> str:
    """Describe the signing keys, who else needs them, and signs that somebody lacks them."""
    first, *others = keys.ids
    text = f"What we write on messages is signed with key {first}"
    if others:
        text += f"; verified with {', '.join(others)} as well"
    text += "."
    if silent:
        count = "1 replayed copy has"
        if silent > 1:
            many = f"{silent}" if silent < _MOST else f"{_MOST} or more"
            count = f"{many} replayed copies have"
        text += (
            f" {count} had no outcome for a day. If workers of another office take"
            " them, set the same `signing_keys` on both sides: `dlq doctor` there names"
            " its keys."
        )
    else:
        text += " Other offices on this broker need the same `signing_keys`."
    return text


OLD: Final = timedelta(days=7)
LARGE_WAL: Final = 256 * 1024 * 1024
LITTLE_SPACE: Final = 512 * 1024 * 1024
NO_SPACE: Final = 64 * 1024 * 1024
VERIFIED: Final = 25_000  # letters; checking more takes too long for a quick look
OTHERS: Final = 0o077  # what people who are not the owner may do
AHEAD: Final = timedelta(minutes=5)
APART: Final = timedelta(seconds=30)  # clocks nobody needs to set
_FLOODS: Final = 100  # overflow groups that are looked at
_DURABLE: Final = frozenset({Durability.POWER_SAFE, Durability.REPLICATED})


class Health(StrEnum):
    """The results of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"  # not looked at; the text says how to


class Check(Struct, frozen=True):
    """One check; `text` describes the state, and says what to do if it is not ok."""

    name: str
    health: Health
    text: str


async def examine(
    engine: Engine, clock: Clock, file: Path | None, keys: Keys | None = None
) -> list[Check]:
    """
    Check everything that tends to go wrong.

    `file` is the file of the engine. `keys` are those that headers are signed with, where
    others could write them.
    """
    checks = [_versions(), check_durability(engine), *check_locks(engine)]
    checks += [*_disk(file), *_privacy(file)]
    try:
        queues = await engine.broker.queues()
        checks.append(_ok("reachable", _answering(queues)))
        checks += [_topology(queues), await _limits(engine.broker, queues)]
        checks += [_suspects(queues), _workers(queues, clock.now())]
        if isinstance(engine.broker, Timed):
            checks.append(_server_clock(await engine.broker.time(), clock.now()))
        if engine.letters is None:
            checks.append(_warn("office", "This engine keeps no letters."))
        else:
            checks += [check async for check in _office(engine.letters, clock)]
            if keys is not None:
                checks.append(await _keys(engine.letters, clock, keys))
    except BackendError as error:
        text = f"{error} Check the URL and that nothing else holds the file."
        checks.append(Check("reachable", Health.FAIL, text))
    return checks


def worst(checks: Sequence[Check]) -> Health:
    """Return the worst health of all checks."""
    healths = {check.health for check in checks}
    if Health.FAIL in healths:
        return Health.FAIL
    return Health.WARN if Health.WARN in healths else Health.OK


def _versions() -> Check:
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < (3, 35):
        text = f"{versions}: SQLite 3.35 or newer is needed; use a newer Python."
        return Check("versions", Health.FAIL, text)
    return _ok("versions", f"{versions}, {sys.platform}.")


def check_durability(engine: Engine) -> Check:
    """Report what acknowledged messages and letters survive."""
    mailboxes = engine.features
    office = mailboxes if engine.letters is None else engine.letters.features
    text = f"{mailboxes.engine}: what is acknowledged is {mailboxes.durability}."
    if office.engine != mailboxes.engine:
        text += f" {office.engine}: letters are {office.durability}."
    if office.durability not in _DURABLE:
        return _warn("durability", f"{text} A power cut may lose the latest letters.")
    if mailboxes.durability not in _DURABLE:
        return _warn("durability", f"{text} A power cut may lose the latest messages.")
    return _ok("durability", text)


def check_locks(engine: Engine) -> list[Check]:
    """Warn if other code in this process can drop the locks on the engine's file."""
    if not isinstance(engine, LocksFile):
        return []
    if engine.lock_problem is None:
        return [_ok("file locks", "Nothing that a handler opens or closes drops them.")]
    text = (
        "A handler that opens and closes the database file, as a copying backup does,"
        " drops the locks on it, and messages may be lost or run twice:"
        f" {engine.lock_problem}. Until then, let handlers leave the file alone."
    )
    return [_warn("file locks", text)]


def _disk(file: Path | None) -> list[Check]:
    if file is None:
        return []
    free = shutil.disk_usage(file.parent).free
    room = f"{_megabytes(free)} free where {file.name} lives."
    wal = file.with_name(f"{file.name}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    checks = [_ok("write-ahead log", f"{_megabytes(size)}.")]
    if size > LARGE_WAL:
        text = (
            f"{_megabytes(size)}: some process reads for very long and keeps it from "
            "being emptied; find and restart it."
        )
        checks = [_warn("write-ahead log", text)]
    if free < NO_SPACE:
        checks.append(Check("disk", Health.FAIL, f"{room} Make room now."))
    elif free < LITTLE_SPACE:
        checks.append(_warn("disk", f"{room} Make room soon."))
    else:
        checks.append(_ok("disk", room))
    return checks


def _privacy(file: Path | None) -> list[Check]:
    """Warn if other users may read the contents of messages."""
    if file is None:
        return []
    beside = (file, file.with_name(f"{file.name}-wal"))
    for one in beside:
        if one.exists() and one.stat().st_mode & OTHERS:
            text = f"Others than its owner may use {one}: `chmod go= {quote(str(one))}`."
            return [_warn("privacy", text)]
    return []


def _answering(queues: Sequence[QueueInfo]) -> str:
    count = len(queues)
    return "1 mailbox answers." if count == 1 else f"{count} mailboxes answer."


def _topology(queues: Sequence[QueueInfo]) -> Check:
    names = {queue.options.name for queue in queues}
    has_dead = {queue.options.name for queue in queues if queue.options.dead_queue}
    for queue in queues:
        name, dead = queue.options.name, queue.options.dead_queue
        if dead is None:
            continue
        if dead == name:
            problem = f"{name} is its own dead-letter mailbox"
        elif dead in has_dead:
            problem = f"{dead}, where {name} sends its dead letters, has one of its own"
        elif dead not in names:
            problem = f"{name} sends its dead letters to {dead}, which does not exist"
        else:
            continue
        text = f"{problem}. Change it with `dlq queues update {name} --dead-queue …`."
        return Check("dead queues", Health.FAIL, text)
    have = "mailbox has" if len(names) == 1 else "mailboxes have"
    return _ok("dead queues", f"{len(has_dead)} of {len(names)} {have} one.")


async def _limits(broker: Broker, queues: Sequence[QueueInfo]) -> Check:
    # How often handlers try is their policy, so the least there is.
    for queue in queues:
        problem = await broker.conflict(queue.options.name, attempts=1)
        if problem is not None:
            return Check("limits", Health.FAIL, f"{problem}.")
    if isinstance(broker, OperatorLimits):
        try:
            problems = await broker.overruled()
        except DeadLetterError as error:  # they cannot be seen
            return _warn("limits", f"{error}.")
        if problems:
            return Check("limits", Health.FAIL, f"{problems[0]}.")
    return _ok("limits", "No mailbox takes messages away while they are tried.")


def _suspects(queues: Sequence[QueueInfo]) -> Check:
    waiting = {queue.options.name: queue.suspects for queue in queues if queue.suspects}
    if not waiting:
        return _ok("suspects", "No message waits for a worker that died over it.")
    names = ", ".join(f"{name} ({count:,})" for name, count in waiting.items())
    text = (
        f"Workers died holding messages of {names}. They run alone, one at a time, "
        "while a worker is up; see why it died."
    )
    return _warn("suspects", text)


def _workers(queues: Sequence[QueueInfo], now: datetime) -> Check:
    idle = unworked(queues, now)
    if not idle:
        return _ok("workers", "No mailbox has messages that seem to wait for a worker.")
    names = ", ".join(f"{one.options.name} ({one.ready:,} ready)" for one in idle[:5])
    more = f" and {len(idle) - 5} more" if len(idle) > 5 else ""
    text = (
        f"No worker holds a message of {names}{more}. "
        "Start one with `dlq work`, or see why it takes none."
    )
    return _warn("workers", text)


async def _office(store: LetterStore, clock: Clock) -> AsyncIterator[Check]:
    yield await _integrity(store)
    yield await _clock(store, clock)
    yield await _held_back(store, clock)
    yield await _overflow(store, clock)
    yield await _unreviewed(store, clock)
    yield await _unsettled(store, clock)


async def _integrity(store: LetterStore) -> Check:
    counts = await store.counts()
    letters = sum(sum(states.values()) for states in counts.values())
    if letters > VERIFIED:
        text = f"{letters:,} letters were not checked here: `dlq verify` checks them."
        return Check("integrity", Health.SKIPPED, text)
    findings = await store.verify()
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        text = f"{findings[0]}{more} `dlq verify` lists them all."
        return Check("integrity", Health.FAIL, text)
    return _ok("integrity", "Audit chain, group counts and digests add up.")


async def _clock(store: LetterStore, clock: Clock) -> Check:
    page = await store.find(limit=1)
    if page.heads and page.heads[0].dead_at > clock.now() + AHEAD:
        text = (
            f"The latest letter died at {page.heads[0].dead_at:%Y-%m-%d %H:%M} UTC, "
            "which is in the future. Check the clocks of this machine and the workers."
        )
        return _warn("clock", text)
    return _ok("clock", f"It is {clock.now():%Y-%m-%d %H:%M:%S} UTC.")


async def _overflow(store: LetterStore, clock: Clock) -> Check:
    begin = clock.now() - timedelta(days=1)
    found = await store.groups(only_open=False, named=OVERFLOW, limit=_FLOODS)
    recent = [group for group in found if group.last_seen > begin]
    if not recent:
        return _ok("groups", "No flood of new groups within a day.")
    names = ", ".join(
        f"{group.error_type.rpartition('.')[2]} in {group.source} ({group.open:,} open)"
        for group in recent[:3]
    )
    more = f" and {len(recent) - 3} more" if len(recent) > 3 else ""
    text = (
        f"Too many different error texts for groups of their own: {names}{more}."
        " `dlq groups` shows them as overflow; `dlq groups show` what they share."
    )
    return _warn("groups", text)


def _server_clock(theirs: datetime, ours: datetime) -> Check:
    apart = theirs - ours
    if abs(apart) <= APART:
        return _ok("server clock", "It agrees with the clock of this machine.")
    which = "ahead of" if apart > timedelta() else "behind"
    by = format_duration(round(abs(apart).total_seconds()))
    text = (
        f"The clock of the server is {by} {which} the clock of this machine. "
        "Retries and leases go by the clock of the server: "
        "set the clock that is wrong."
    )
    return _warn("server clock", text)


async def _keys(store: LetterStore, clock: Clock, keys: Keys) -> Check:
    silent = await silent_copies(store, clock.now())
    text = describe(keys, silent)
    return _warn("signing keys", text) if silent else _ok("signing keys", text)


async def _held_back(store: LetterStore, clock: Clock) -> Check:
    outages = await list_outages(store, clock, only_open=True)
    if not outages:
        return _ok("brake", "No mailbox is held back.")
    window = outages[0].window
    more = f" (and {len(outages) - 1} more)" if len(outages) > 1 else ""
    text = (
        f"{window.mailbox} is held back ({window.kind}): {window.text}.{more} "
        "Nothing is charged or buried meanwhile; `dlq outages` says what to do."
    )
    return _warn("brake", text)


async def _unreviewed(store: LetterStore, clock: Clock) -> Check:
    letters = Letters(store, clock)
    old = All((Term("is", Op.IS, (State.PENDING,)), Term("age", Op.GT, (f"{OLD.days}d",))))
    most = 1_000
    found = len((await letters.search(old, limit=most)).heads)
    if not found:
        return _ok("review", f"No pending letter is older than {OLD.days} days.")
    count = f"{found:,}" if found < most else f"{most:,} or more"
    they = "pending letter is" if found == 1 else "pending letters are"
    text = f"{count} {they} older than {OLD.days} days: `dlq list 'is:pending age:>{OLD.days}d'`."
    return _warn("review", text)


async def _unsettled(store: LetterStore, clock: Clock) -> Check:
    letters, since = together(await waiting(store, await store.counts()))
    if not letters:
        return _ok("replays", "No letter waits for the outcome of a replay.")
    they = "letter waits" if letters == 1 else "letters wait"
    text = f"{letters:,} {they} for the outcome of a replay"
    if since is None or clock.now() - since < LONG_WAIT:
        return _ok("replays", f"{text}.")
    waited = format_duration(round((clock.now() - since).total_seconds()))
    text += (
        f", the oldest for {waited}. See `dlq list is:{State.REPLAYING}`; is a worker"
        " running? Letters whose outcome will not come: `dlq replay ID --unconfirmed`"
        " sends one again, `dlq close ID --unconfirmed` closes it."
    )
    return _warn("replays", text)


def _ok(name: str, text: str) -> Check:
    return Check(name, Health.OK, text)


def _warn(name: str, text: str) -> Check:
    return Check(name, Health.WARN, text)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
