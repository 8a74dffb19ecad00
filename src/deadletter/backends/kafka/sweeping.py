"""What lost workers held, and what is past saving, of what we have in hand."""

from deadletter.ports.broker import Swept

from .mailbox import Mailbox


async def sweep_mailbox(
    box: Mailbox, *, max_attempts: int, mortal: bool, limit: int, lease: float
) -> Swept:
    """Sweep one mailbox that this process is a member for."""
    member = await box.member()
    await box.make_way(member)
    with member.lock:
        shortened = member.holding.shorten(box.now())
    if shortened:
        member.ring()
    returned = await box.send_round(member)
    overdue = await _take_back(box)
    if returned or overdue:
        await member.caught_up()  # with what has just been sent round
    now = box.now()
    until = now + round(lease * 1e6)
    with member.lock:
        doomed = []
        if mortal:
            # Not an attempt, so none is counted: lost again, it is as it was.
            for row in list(member.holding.doomed(now, max_attempts))[: max(0, limit)]:
                member.holding.hold(row, until, until - now, counted=False)
                doomed.append(row.delivery(box.name, now))
        waiting = member.holding.has_suspects(now)
    suspects = frozenset({box.name} if waiting else ())
    return Swept(
        sum(returned) + overdue,
        suspects,
        tuple(doomed),
        misdated=len(shortened),
        ahead=max(shortened, default=0) / 1e6,
    )


async def _take_back(box: Mailbox) -> int:
    """Make suspects of what workers of this process held for too long."""
    member = await box.member()
    now = box.now()
    with member.lock:
        overdue = member.holding.overdue(now)
        for row in overdue:
            if not row.counted:  # a sweep's that did not end it
                member.holding.put_back(row)
        rows = [row for row in overdue if row.counted]
        going = [(row, row.lost(now)) for row in rows]
    if not rows:
        return 0
    await box.republish(member, going)
    await box.committed(member, rows)
    member.ring()
    return len(rows)
