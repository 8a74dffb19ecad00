"""Copies of letters in dead-letter mailboxes."""

from collections.abc import Sequence
from functools import partial

from deadletter.core.errors import ConfigError, Conflict, NotFound, Refused
from deadletter.core.events import CopyFailed, Observer
from deadletter.core.letter import DeadLetter
from deadletter.core.letter_mail import sign_copy
from deadletter.core.policy import DLQPolicy
from deadletter.core.raised import described
from deadletter.core.signing import Keys
from deadletter.ports import Broker

from .keeping import all_but_refused
from .reach import Reach


async def copy_letters(
    letters: Sequence[DeadLetter],
    *,
    broker: Broker,
    policy: DLQPolicy,
    keys: Keys,
    observe: Observer,
    reach: Reach | None = None,
) -> None:
    """
    Copy letters to their dead-letter mailboxes, returning once those have them.

    The letters are kept already. A mailbox that cannot be reached is waited for
    (without a `reach`, its error is raised); one that refuses a copy is told of
    and not asked again, or the message would never leave its own mailbox.
    """
    by_mailbox: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        to = policy.dead_mailbox(letter.head.source, letter.route)
        if to is not None:
            by_mailbox.setdefault(to, []).append(letter)
    for to, copied in by_mailbox.items():
        send = partial(_send, broker, to, policy, keys)
        call = partial(all_but_refused, send, copied)
        if reach is None:
            answers = await call()
        else:
            answers = await reach.patiently(f"mailbox {to}", call)
        for letter, answer in zip(copied, answers, strict=True):
            if isinstance(answer, Refused):
                mailbox, text = letter.head.source, str(answer)
                observe(
                    CopyFailed(mailbox=mailbox, letter_id=letter.id, to=to, text=text)
                )


async def _send(
    broker: Broker,
    to: str,
    policy: DLQPolicy,
    keys: Keys,
    letters: Sequence[DeadLetter],
) -> Sequence[None]:
    try:
        copies = [policy.dead_copy(letter) for letter in letters]
    except Exception as error:  # theirs, when they make copies of their own
        text = f"dead_copy raised {described(error)}"
        raise Refused(text) from error
    signed = [
        sign_copy(copy, letter, to, keys)
        for copy, letter in zip(copies, letters, strict=True)
    ]
    try:
        await broker.sink(to).send(signed)
    except (ConfigError, Conflict, NotFound) as error:
        # No such mailbox, or not one for letters: asking again does not help.
        raise Refused(str(error)) from error
    return [None] * len(letters)
