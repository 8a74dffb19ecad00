"""
Letters sent back where no engine does it in one: taken, sent, noted as sent.

Each letter has its own outcome. One that its server does not take is `refused`, and
the others go on; what was sent is noted as sent also when its neighbour fails.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    NotFound,
    PartlySent,
    Refused,
)
from deadletter.core.message import Lineage, Message
from deadletter.core.plain import cut, plain_line
from deadletter.core.redact import redact
from deadletter.core.replaying import copied
from deadletter.core.signing import Keys, sign_lineage
from deadletter.ports import (
    LetterStore,
    Outlet,
    Posted,
    ReplaySettled,
    ReplayTaken,
    Sink,
)

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

    Each is claimed with its generation before its copy is sent: whoever is killed in
    between leaves letters that are sent again under the same generation. What
    interrupts the sending is raised once the outcomes known so far are written down.
    """
    taken = await store.take_replay(
        campaign.id, limit=limit, leave_out=leave_out, keys=started
    )
    if not taken:
        return Posted(0, 0)
    by_mailbox: defaultdict[str, list[ReplayTaken]] = defaultdict(list)
    for one in taken:
        by_mailbox[campaign.to or one.source].append(one)
    sent: list[ReplayTaken] = []
    refused: list[ReplaySettled] = []
    interruption: DeadLetterError | None = None
    for mailbox, letters in by_mailbox.items():
        copies = [
            copy_of(one, campaign.id, mailbox, now=now, keys=keys) for one in letters
        ]
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
    """The message that is sent for a letter, signed for the mailbox it goes to."""
    lineage = Lineage(
        letter_id=taken.letter_id, generation=taken.generation, campaign=campaign
    )
    return sign_lineage(copied(taken.message, lineage, now), mailbox, keys)


class Sending(Struct):
    """What became of each message of a batch, by its place there."""

    sent: set[int]
    refused: dict[int, DeadLetterError]
    interruption: DeadLetterError | None = None  # the others: nobody knows


async def send_each(sink: Sink, messages: Sequence[Message]) -> Sending:
    """
    Send messages as one batch where possible; those refused do not stop the others.

    A batch that is refused as a whole is halved until the message that is refused
    stands alone, in the order of the batch.
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
