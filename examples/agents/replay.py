"""
Sending dead letters back.

What goes back is the message itself, by way of deadletter's office: the letter knows
that its copy is out and what became of it, a copy that fails again returns to its
letter, and who asks twice sends once. Only where the office does not know the letter,
or somebody else is to get the reply, the body is sent as a message of its own.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias, TypeVar, cast

import structlog

from deadletter.core.events import LetterHandled
from deadletter.core.ids import letter_id
from deadletter.core.letter import OPEN, By, Changes, State
from deadletter.core.letter import DeadLetter as Kept
from deadletter.office.letters import Letters
from deadletter.office.replay import CAP, Replay

from .bodies import encode
from .errors import MailboxResolutionError
from .letters import DeadLetter
from .mailbox import PostMailbox
from .message import Mailbox
from .post import Post
from .resolvers import MailboxResolver
from .sifting import sift

T = TypeVar("T")
R = TypeVar("R")
Predicate: TypeAlias = Callable[[DeadLetter[Any]], bool]
Transform: TypeAlias = Callable[[Any], Any]

BY = By("agents.replay", "replayed from the dead-letter mailbox")
log = structlog.get_logger("agents.replay")


class Went(Enum):
    """What came of sending a letter back."""

    SENT = "sent"
    BEFORE = "before"  # it is out already, or done with
    HELD = "held"  # sent back too often: for people only


def replay_handler(
    dead_letter: DeadLetter[T],
    *,
    source: Mailbox[T, Any],
    reply_resolver: MailboxResolver,
    transform: Transform | None = None,
) -> str:
    """
    Send one back; the handler of a DLQConsumer, once its mailboxes are filled in.

    The reply goes where it was to go; a MailboxResolutionError when that is gone.
    """
    went = send_back(dead_letter, source=source, reply_resolver=reply_resolver, transform=transform)
    return "replayed" if went is Went.SENT else "processed"


def send_back(
    dead_letter: DeadLetter[T],
    *,
    source: Mailbox[T, Any],
    reply_resolver: MailboxResolver,
    transform: Transform | None = None,
) -> Went:
    """Send one back, and say what came of it."""
    reply_to = None
    if dead_letter.reply_to is not None:
        reply_to = reply_resolver.resolve(dead_letter.reply_to)
    box = cast("PostMailbox[T, Any]", source)
    kept = box.post.call(_kept(box.post, dead_letter))
    went = _standing(kept)
    if went is Went.SENT:
        body = transform(dead_letter.body) if transform else dead_letter.body
        is_same = (reply_to.name if reply_to else None) == dead_letter.reply_to
        if kept is not None and is_same:
            box.post.call(_through_office(box, kept, encode(body) if transform else None))
        else:
            source.send(body, reply_to=reply_to)
            box.post.call(_close(box.post, dead_letter))
    log.info(
        "Replayed dead letter" if went is Went.SENT else "Dead letter not replayed",
        message_id=dead_letter.message_id,
        request_id=str(dead_letter.request_id),
        went=went.value,
    )
    return went


def selective_replay(
    dlq: Mailbox[DeadLetter[T], None],
    source: Mailbox[T, Any],
    *,
    predicate: Predicate,
    reply_resolver: MailboxResolver,
    transform: Transform | None = None,
) -> int:
    """
    Send back all that match, and say how many that were; the others stay.

    The whole mailbox is looked through, wherever in it they are.
    """
    post = cast("PostMailbox[Any, Any]", dlq).post
    source_post = cast("PostMailbox[Any, Any]", source).post
    sent = list[DeadLetter[Any]]()

    def take(letter: DeadLetter[Any]) -> bool:
        if not predicate(letter):
            return False
        went = _tried(letter, source, reply_resolver, transform)
        if went is Went.SENT:
            sent.append(letter)
            if source_post is not post:  # nobody else will tell its office
                post.call(_close(post, letter))
            _tell(post, dlq.name, letter)
        return went in (Went.SENT, Went.BEFORE)

    sift(dlq, take)
    return len(sent)


def _tried(
    letter: DeadLetter[Any],
    source: Mailbox[Any, Any],
    resolver: MailboxResolver,
    transform: Transform | None,
) -> Went | None:
    try:
        return send_back(letter, source=source, reply_resolver=resolver, transform=transform)
    except MailboxResolutionError as error:
        log.warning("Dead letter left", message_id=letter.message_id, error=str(error))
        return None


def _tell(post: Post, mailbox: str, letter: DeadLetter[Any]) -> None:
    """For the metrics: a consumer is not the only one who replays."""
    age = (post.clock.now() - letter.dead_lettered_at).total_seconds()
    request_id = None if letter.request_id is None else str(letter.request_id)
    post.observe(
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


def _standing(kept: Kept | None) -> Went:
    """What comes of sending it back now; what the office does not know can be sent."""
    if kept is None:
        return Went.SENT
    if kept.head.state is State.QUARANTINED or kept.head.replays >= CAP:
        return Went.HELD
    return Went.SENT if kept.head.state in OPEN else Went.BEFORE


async def _kept(post: Post, letter: DeadLetter[Any]) -> Kept | None:
    """What the office keeps of it."""
    found = await (await post.letters()).get([_id(letter)])
    return found[0] if found else None


async def _through_office(source: PostMailbox[Any, Any], kept: Kept, body: bytes | None) -> None:
    """Send the letter's own message; with another body, what died stays beside it."""
    post = source.post
    engine, store = await post.engine(), await post.letters()
    if body is not None and body != kept.message.body:
        letters, changes = Letters(store, post.clock), Changes(body=body)
        await letters.edit(kept.id, changes, BY, revision=kept.head.revision)
    replay = Replay(
        store,
        engine.broker,
        post.clock,
        post.dice,
        engine.ledger,
        atomic_replay=engine.atomic_replay,
    )
    elsewhere = None if source.name == kept.head.source else source.name
    campaign = await replay.begin([kept.id], BY, query=f"id:{kept.id}", to=elsewhere)
    await replay.run(campaign.id)


async def _close(post: Post, letter: DeadLetter[Any]) -> None:
    """It goes on as a message of its own: its letter is done with."""
    await Letters(await post.letters(), post.clock).close([_id(letter)], BY)


def _id(letter: DeadLetter[Any]) -> str:
    return letter_id(letter.source_mailbox, "", letter.message_id)
