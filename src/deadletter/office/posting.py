"""Letters sent back where no engine does it in one: taken, sent, noted as sent."""

from collections import defaultdict
from datetime import datetime

from deadletter.core.campaign import Campaign
from deadletter.core.message import Lineage, Message
from deadletter.core.replaying import copied
from deadletter.core.signing import Keys, sign_lineage
from deadletter.ports import LetterStore, Outlet, Posted


async def post(
    store: LetterStore,
    broker: Outlet,
    campaign: Campaign,
    *,
    limit: int,
    now: datetime,
    keys: Keys,
) -> Posted:
    """
    Send the next letters of a campaign.

    Each is claimed with its generation before its copy is sent: whoever is killed in
    between leaves letters that are sent again under the same generation.
    """
    taken = await store.take_replay(campaign.id, limit=limit)
    if not taken:
        return Posted(0, 0)
    copies: defaultdict[str, list[Message]] = defaultdict(list)
    for one in taken:
        lineage = Lineage(
            letter_id=one.letter_id, generation=one.generation, campaign=campaign.id
        )
        mailbox = campaign.to or one.source
        copy = copied(one.message, lineage, now)
        copies[mailbox].append(sign_lineage(copy, mailbox, keys))
    for mailbox, messages in copies.items():
        await broker.sink(mailbox).send(messages)
    await store.sent_replay(campaign.id, [one.letter_id for one in taken])
    return Posted(len(taken), sum(len(one.message.body) for one in taken))
