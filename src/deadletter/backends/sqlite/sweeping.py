"""The store-side decider: what lost workers held, and what is past saving."""

import sqlite3
from collections.abc import Sequence
from typing import Final

import msgspec

from deadletter.core.message import Delivery
from deadletter.ports.broker import Swept

from .misdated import Misdated
from .rows import read_claimed

_LOST_AT_ONCE: Final = 5_000  # a slice, so that writers beside us do not wait long

# Lost in company, it may have been a neighbour's fault: not charged. Lost alone,
# it was its own.
_TAKE_BACK: Final = """
UPDATE messages SET token = NULL, leased = NULL, span = 0, alone = 0, suspect = 1,
    spared = spared + 1 - alone
WHERE seq IN (
    SELECT seq FROM messages WHERE token IS NOT NULL AND leased <= ?
    ORDER BY leased LIMIT ?)
"""
# A dead queue's messages neither expire nor run out of attempts.
_MORTAL: Final = """
SELECT id FROM mailboxes AS mortal WHERE NOT gone AND NOT EXISTS (
    SELECT 1 FROM mailboxes AS user WHERE user.dead_queue = mortal.name)
"""
_EXPIRED: Final = f"""
SELECT seq FROM messages
WHERE token IS NULL AND expires_at <= :now AND mailbox IN ({_MORTAL})
LIMIT :limit
"""  # noqa: S608 -- made of constants
_EXHAUSTED: Final = f"""
SELECT seq FROM mailboxes CROSS JOIN messages ON messages.mailbox = mailboxes.id
WHERE token IS NULL AND suspect = 1 AND max_attempts > 0
AND attempts - spared >= max_attempts AND mailboxes.id IN ({_MORTAL})
LIMIT :limit
"""  # noqa: S608 -- made of constants
# It is not an attempt, so none is counted; and held alone, so that losing it
# again neither charges nor spares it anything.
_CLAIM: Final = """
UPDATE messages SET token = :token, leased = :until, span = :until - :now, alone = 1
WHERE seq IN ({which})
"""
_NAMES: Final = "SELECT json_group_object(id, name) FROM mailboxes"
_SUSPECTS: Final = """
SELECT json_group_array(name) FROM mailboxes WHERE EXISTS (
    SELECT 1 FROM messages WHERE mailbox = mailboxes.id
    AND token IS NULL AND suspect = 1 AND due <= ?)
"""

_names: Final = msgspec.json.Decoder(dict[int, str]).decode
_suspects: Final = msgspec.json.Decoder(frozenset[str]).decode


def sweep(
    connection: sqlite3.Connection,
    misdated: Misdated,
    *,
    now: int,
    lease: int,
    token: int,
    limit: int,
) -> Swept:
    """Do it all, in the transaction of the connection."""
    until = now + lease
    shortened, ahead = misdated.shorten(connection, now)
    lost = connection.execute(_TAKE_BACK, (now, _LOST_AT_ONCE)).rowcount
    doomed = 0
    for which in (_EXPIRED, _EXHAUSTED):
        values = {"token": token, "until": until, "now": now, "limit": limit - doomed}
        doomed += connection.execute(_CLAIM.format(which=which), values).rowcount
    (names,) = connection.execute(_SUSPECTS, (now,)).fetchone()
    deliveries: Sequence[Delivery] = ()
    if doomed:
        claimed = read_claimed(connection, until, token)
        (mailboxes,) = connection.execute(_NAMES).fetchone()
        deliveries = claimed.deliveries(_names(mailboxes))
    return Swept(
        lost,
        _suspects(names),
        tuple(deliveries),
        misdated=shortened,
        ahead=ahead / 1_000_000,
    )
