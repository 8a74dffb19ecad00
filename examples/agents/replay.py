"""
Sending dead letters back.

Where the office of the source knows the letter, it sends the message itself: the letter
then shows that its copy is out and what became of it, a copy that fails again returns to
its letter, and asking twice sends once. Otherwise, and where the reply is to go elsewhere,
the body is sent as a new message.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import structlog

from deadletter.core.events import LetterHandled
from deadletter.core.ids import letter_id
from deadletter.core.letter import OPEN, By, Changes, State
from deadletter.core.letter import DeadLetter as Kept
from deadletter.office.letters import Letters
from deadletter.office.replay import Replay
from deadletter.office.replay_verdicts import CAP
from deadletter.ports import Ledger, LedgerClaim, LedgerKey, LedgerState

from .backend import Backend
from .dead_letter import DeadLetter
from .errors import MailboxResolutionError
from .mailbox import BackendMailbox
from .mailbox_scan import scan_mailbox
from .message import Mailbox
from .resolvers import MailboxResolver
from .serialization import encode

T = TypeVar("T")
R = TypeVar("R")
Predicate: TypeAlias = Callable[[DeadLetter[Any]], bool]
Transform: TypeAlias = Callable[[Any], Any]

BY: Final = By("agents.replay", "replayed from the dead-letter mailbox")
LEASE: Final = 60.0  # seconds to send one letter
TTL: Final = 2_592_000.0  # seconds a replay log remembers: 30 days, as long as letters are kept
log = structlog.get_logger("agents.replay")


class ReplayOutcome(Enum):
    """The outcome of sending a letter back."""

    SENT = "sent"
    BEFORE = "before"  # it was sent back or closed before
    HELD = "held"  # it was replayed too often: only people may send it


def replay_handler(
    dead_letter: DeadLetter[T],
    *,
    source: Mailbox[T, Any],
    reply_resolver: MailboxResolver,
    transform: Transform | None = None,
) -> str | None:
    """
    Send one letter back; a handler of a DLQConsumer, once its mailboxes are filled in.

    The reply goes to the original reply mailbox. Raises MailboxResolutionError if that no
    longer exists. Returns "replay" if the letter was sent.
    """
    outcome = send_back(
        dead_letter, source=source, reply_resolver=reply_resolver, transform=transform
    )
    return "replay" if outcome is ReplayOutcome.SENT else None


def send_back(
    dead_letter: DeadLetter[T],
    *,
    source: Mailbox[T, Any],
    reply_resolver: MailboxResolver | None,
    transform: Transform | None = None,
) -> ReplayOutcome:
    """Send one letter back and return the outcome; without a resolver, nobody gets a reply."""
    reply_to = None
    if dead_letter.reply_to is not None and reply_resolver is not None:
        reply_to = reply_resolver.resolve(dead_letter.reply_to)
    box = source if isinstance(source, BackendMailbox) else None
    kept = box.backend.call(_kept(box.backend, dead_letter)) if box else None
    outcome = _outcome(kept)
    if outcome is ReplayOutcome.SENT:
        body = transform(dead_letter.body) if transform else dead_letter.body
        is_same = (reply_to.name if reply_to else None) == dead_letter.reply_to
        if box is not None and kept is not None and is_same:
            changed = encode(body) if transform else None
            box.backend.call(_send_through_office(box, kept, changed))
        else:
            source.send(body, reply_to=reply_to)
            if box is not None:
                box.backend.call(_close(box.backend, dead_letter))
    log.info(
        "Replayed dead letter" if outcome is ReplayOutcome.SENT else "Dead letter not replayed",
        message_id=dead_letter.message_id,
        request_id=str(dead_letter.request_id),
        outcome=outcome.value,
    )
    return outcome


def selective_replay(
    dlq: Mailbox[DeadLetter[T], None],
    source: Mailbox[T, Any],
    *,
    predicate: Predicate,
    reply_resolver: MailboxResolver,
    transform: Transform | None = None,
    whole_mailbox: bool = False,
) -> int:
    """
    Send back the letters that match, and return their number; the others stay.

    Looks at the next ten letters, or at the whole mailbox.
    """
    backend = dlq.backend if isinstance(dlq, BackendMailbox) else None
    elsewhere = not isinstance(source, BackendMailbox) or source.backend is not backend
    sent = list[DeadLetter[Any]]()

    def take(letter: DeadLetter[Any]) -> bool:
        if not predicate(letter):
            return False
        outcome = _send_if_resolved(letter, source, reply_resolver, transform)
        if outcome is ReplayOutcome.SENT:
            sent.append(letter)
            if backend is not None:
                if elsewhere:  # otherwise its office knows already
                    backend.call(_close(backend, letter))
                _report(backend, dlq.name, letter)
        return outcome in (ReplayOutcome.SENT, ReplayOutcome.BEFORE)

    scan_mailbox(dlq, take, batches=None if whole_mailbox else 1)
    return len(sent)


def _send_if_resolved(
    letter: DeadLetter[Any],
    source: Mailbox[Any, Any],
    resolver: MailboxResolver,
    transform: Transform | None,
) -> ReplayOutcome | None:
    try:
        return send_back(letter, source=source, reply_resolver=resolver, transform=transform)
    except MailboxResolutionError as error:
        log.warning("Dead letter left", message_id=letter.message_id, error=str(error))
        return None


def _report(backend: Backend, mailbox: str, letter: DeadLetter[Any]) -> None:
    """Report a replay to the metrics, as a consumer reports its own."""
    age = (backend.clock.now() - letter.dead_lettered_at).total_seconds()
    request_id = None if letter.request_id is None else str(letter.request_id)
    backend.observe(
        LetterHandled(
            mailbox=mailbox,
            letter_id=_id(letter),
            seconds=0.0,
            age=max(age, 0.0),
            action="replayed",
            message_id=letter.message_id,
            request_id=request_id,
        )
    )


def _outcome(kept: Kept | None) -> ReplayOutcome:
    """Return the outcome of sending a letter now; one the office does not know can be sent."""
    if kept is None:
        return ReplayOutcome.SENT
    if kept.head.state is State.QUARANTINED or kept.head.replays >= CAP:
        return ReplayOutcome.HELD
    return ReplayOutcome.SENT if kept.head.state in OPEN else ReplayOutcome.BEFORE


async def _kept(backend: Backend, letter: DeadLetter[Any]) -> Kept | None:
    """Return the letter as the office keeps it, if it does."""
    found = await (await backend.letters()).get([_id(letter)])
    return found[0] if found else None


async def _send_through_office(
    source: BackendMailbox[Any, Any], kept: Kept, body: bytes | None
) -> None:
    """Send the letter's own message; with another body, the original is kept beside it."""
    backend = source.backend
    engine, store = await backend.engine(), await backend.letters()
    if body is not None and body != kept.message.body:
        letters, changes = Letters(store, backend.clock), Changes(body=body)
        await letters.edit(kept.id, changes, BY, revision=kept.head.revision)
    replay = Replay(
        store,
        engine.broker,
        backend.clock,
        backend.dice,
        engine.ledger,
        atomic_replay=engine.atomic_replay,
    )
    elsewhere = None if source.name == kept.head.source else source.name
    campaign = await replay.begin([kept.id], BY, query=f"id:{kept.id}", to=elsewhere)
    await replay.run(campaign.id)


async def _close(backend: Backend, letter: DeadLetter[Any]) -> None:
    """Close a letter whose body goes on as a new message."""
    await Letters(await backend.letters(), backend.clock).close([_id(letter)], BY)


def _id(letter: DeadLetter[Any]) -> str:
    return letter_id(letter.source_mailbox, "", letter.message_id)


# Replaying each request once.


class ReplayLog:
    """
    The requests that were replayed, kept by the backend under a name.

    The log survives the process, and all processes that use its name share it. A request
    without an id counts by its message.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        self._place = f"replays.{name}"

    def begin(self, letter: DeadLetter[Any]) -> LedgerClaim:
        """Claim a request; the claim is not `mine` if it was replayed, or is being replayed."""
        key = LedgerKey(
            self._place,
            str(_request_key(letter)),
            # A process that died while sending this letter may be replaced at once.
            holder=letter.message_id,
        )

        async def beginning() -> LedgerClaim:
            (claim,) = await (await self._ledger()).begin([key], lease=LEASE)
            return claim

        return self._backend.call(beginning())

    def finish(self, claim: LedgerClaim) -> None:
        """Record that the request was replayed."""

        async def finishing() -> None:
            ended = [(claim, LedgerState.PROCESSED)]
            await (await self._ledger()).finish(ended, ttl=TTL)

        self._backend.call(finishing())

    async def _ledger(self) -> Ledger:
        ledger = (await self._backend.engine()).ledger
        assert ledger is not None  # Redis and memory keep one
        return ledger


def replay_with_dedup(
    dead_letter: DeadLetter[Any],
    source: Mailbox[Any, Any],
    seen: ReplayLog | set[UUID] | set[UUID | str],
    *,
    reply_resolver: MailboxResolver | None = None,
) -> bool:
    """
    Send a letter back unless its request was replayed before; return whether it was sent.

    `seen` is a set in memory, or a ReplayLog that survives the process.
    """
    if isinstance(seen, ReplayLog):
        return _replay_logged(dead_letter, source, seen, reply_resolver)
    keys: set[Any] = seen
    if _request_key(dead_letter) in keys:
        _log_duplicate(dead_letter)
        return False
    keys.add(_request_key(dead_letter))
    outcome = send_back(dead_letter, source=source, reply_resolver=reply_resolver)
    return outcome is ReplayOutcome.SENT


def _replay_logged(
    letter: DeadLetter[Any],
    source: Mailbox[Any, Any],
    seen: ReplayLog,
    resolver: MailboxResolver | None,
) -> bool:
    claim = seen.begin(letter)
    if not claim.mine:
        _log_duplicate(letter)
        return False
    outcome = send_back(letter, source=source, reply_resolver=resolver)
    if outcome is not ReplayOutcome.HELD:  # that one may still be sent by a person
        seen.finish(claim)
    return outcome is ReplayOutcome.SENT


def _request_key(letter: DeadLetter[Any]) -> UUID | str:
    return letter.request_id or f"message {letter.message_id}"


def _log_duplicate(letter: DeadLetter[Any]) -> None:
    log.info("Skipping duplicate replay", request_id=str(letter.request_id))
