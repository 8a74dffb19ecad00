"""The store-side decider: what lost workers held, and what is past saving."""

from datetime import timedelta
from typing import Any, Final

from deadletter.ports.broker import Swept

from .misdated import Misdated
from .pool import Connection
from .rows import CLAIMED, deliveries

_LOST_AT_ONCE: Final = 5_000  # a slice, so that nobody waits long for these rows

# Lost in company, it may have been a neighbour's fault: not charged. Lost alone,
# it was its own.
_TAKE_BACK: Final = """
WITH lost AS MATERIALIZED (
    SELECT seq FROM deadletter.messages
    WHERE token IS NOT NULL AND leased <= deadletter.clock()
    ORDER BY leased LIMIT $1 FOR UPDATE SKIP LOCKED
), freed AS (
    UPDATE deadletter.messages m
    SET token = NULL, leased = NULL, span = '0', alone = false, suspect = true,
        spared = m.spared + CASE WHEN m.alone THEN 0 ELSE 1 END
    WHERE m.seq = ANY(ARRAY(SELECT seq FROM lost)) RETURNING m.mailbox
)
SELECT mailbox, count(*), pg_notify('deadletter', mailbox::text)
FROM freed GROUP BY mailbox
"""
# A dead queue's messages neither expire nor run out of attempts.
_MORTAL: Final = """
SELECT id, max_attempts FROM deadletter.mailboxes mortal
WHERE NOT gone AND NOT EXISTS (
    SELECT 1 FROM deadletter.mailboxes u WHERE u.dead_queue = mortal.name)
"""
_EXPIRED: Final = "expires_at <= deadletter.clock() ORDER BY expires_at"
_EXHAUSTED: Final = """
suspect AND mortal.max_attempts > 0 AND attempts - spared >= mortal.max_attempts
ORDER BY due, seq
"""
# It is not an attempt, so none is counted; and held alone, so that losing it
# again neither charges nor spares it anything.
_CLAIM: Final = f"""
WITH claim AS MATERIALIZED (SELECT nextval('deadletter.tokens') AS token),
doomed AS MATERIALIZED (
    SELECT m.seq FROM ({_MORTAL}) mortal CROSS JOIN LATERAL (
        SELECT seq FROM deadletter.messages
        WHERE mailbox = mortal.id AND token IS NULL AND {{doomed}}
        LIMIT $1 FOR UPDATE SKIP LOCKED) m
    LIMIT $1)
UPDATE deadletter.messages m
SET token = (SELECT token FROM claim), leased = deadletter.clock() + $2, span = $2,
    alone = true
WHERE m.seq = ANY(ARRAY(SELECT seq FROM doomed))
RETURNING {CLAIMED}
"""  # noqa: S608 -- made of constants
_DOOM: Final = [_CLAIM.format(doomed=doomed) for doomed in (_EXPIRED, _EXHAUSTED)]
NOW: Final = "SELECT deadletter.clock()"
_NAMES: Final = "SELECT id, name FROM deadletter.mailboxes"
_SUSPECTS: Final = """
SELECT name FROM deadletter.mailboxes b WHERE EXISTS (
    SELECT 1 FROM deadletter.messages WHERE mailbox = b.id
    AND token IS NULL AND suspect AND due <= deadletter.clock())
"""


async def sweep(
    connection: Connection, misdated: Misdated, *, limit: int, lease: timedelta
) -> tuple[Swept, list[int]]:
    """Do it all in one transaction; also the mailboxes that were given back to."""
    shortened, ahead, hurried = await misdated.shorten(connection)
    lost = await connection.fetch(_TAKE_BACK, _LOST_AT_ONCE)
    rows: list[Any] = []
    for sql in _DOOM:
        if len(rows) < limit:
            rows += await connection.fetch(sql, limit - len(rows), lease)
    names = dict(await connection.fetch(_NAMES)) if rows else {}
    doomed = deliveries(rows, names)
    suspects = frozenset(row[0] for row in await connection.fetch(_SUSPECTS))
    swept = Swept(
        sum(row[1] for row in lost),
        suspects,
        tuple(doomed),
        misdated=shortened,
        ahead=ahead.total_seconds(),
        at=await connection.fetchval(NOW),
    )
    return swept, [*hurried, *(row[0] for row in lost)]
