"""
Settling: what is given back is noted first, then all is said in one flush.

The consumer deals with what it is told in order, so that its answer to the last word
stands for all. Acks come last: where a stream has replicas, only they are answered
after all of them agree.
"""

from collections.abc import Sequence
from datetime import timedelta

from deadletter.ports.broker import Acked, Released, Settlement

from .errors import Unheard
from .link import Sending
from .mailbox import Claim, Mailbox
from .streams import consumer_info


async def settle(box: Mailbox, settlements: Sequence[Settlement]) -> list[bool]:
    """Forget or hand back; says for each if it was still ours."""
    acked: list[Claim] = []
    released: list[tuple[Claim, Released]] = []
    ours = []
    named: set[int] = set()
    for settlement in settlements:
        claim = box.ours(settlement.delivery)
        mine = claim is not None and claim.arrival.seq not in named
        ours.append(mine)  # of one named twice, only the first
        if claim is None or not mine:
            continue
        named.add(claim.arrival.seq)
        if isinstance(settlement, Acked):
            acked.append(claim)
        else:
            released.append((claim, settlement))
    if not named:
        return ours
    if released:
        await box.notes.write(
            [(claim.arrival.seq, claim.note.released(how)) for claim, how in released]
        )
    try:
        await box.link.in_turn(
            [
                *(box.nak(c.arrival.reply, _delay(box, c, how)) for c, how in released),
                *(Sending(claim.arrival.reply, b"+ACK") for claim in acked),
            ]
        )
    except Unheard:
        if await consumer_info(box.link, box.place) is not None:
            raise  # it is coming up again
        ours = [False] * len(settlements)  # gone, with all that was in it
    # Until now they were ours: whoever failed above may try again.
    box.let_go([*acked, *(claim for claim, _ in released)])
    noted = [claim.note for claim in acked if claim.note.place]
    if noted:
        box.link.start(box.notes.drop(noted))
    return ours


def _delay(box: Mailbox, claim: Claim, how: Released) -> float:
    """How long it stays away: not beyond its expiry."""
    expires_at = claim.arrival.message.expires_at
    if expires_at is None or how.delay <= 0:
        return max(0.0, how.delay)
    left = (expires_at - box.clock.now()) / timedelta(seconds=1)
    return max(0.0, min(how.delay, left))
