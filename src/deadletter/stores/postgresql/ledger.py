"""The idempotency ledger in the database."""

from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Final, TypeAlias

from deadletter.ports.engine import LedgerClaim, LedgerKey, LedgerState, refused_claim, standing

from .database import Connection, Database, Rows, limit_for
from .queue import span
from .rows import octets

# A claim is given for a new generation, after a failure, when an earlier claim
# has run out, and to the message that holds it already: delivered again, its
# earlier worker is fenced. Digests are 16 bytes each; what is NULL is not known.
_BEGIN: Final = """
INSERT INTO deadletter.ledger AS t
    (id, generation, state, holder, token, due, digests)
SELECT g.id, g.generation, 'processing', g.holder, nextval('deadletter.tokens'),
    deadletter.clock() + $5, g.digest
FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[])
    AS g (id, generation, holder, digest)
ON CONFLICT (id) DO UPDATE SET generation = excluded.generation,
    state = excluded.state, holder = excluded.holder, token = excluded.token,
    due = excluded.due, expires_at = NULL,
    digests = CASE
        WHEN excluded.generation > t.generation THEN substring(
            t.digests || excluded.digests
            FROM greatest(1, length(t.digests) + 16 - 63))
        WHEN length(t.digests) > 16 THEN
            substring(t.digests FROM 1 FOR length(t.digests) - 16) || excluded.digests
        ELSE excluded.digests END
WHERE excluded.generation > t.generation
OR excluded.generation = t.generation AND (
    t.state IN ('failed', 'dead_lettered')
    OR t.state = 'processing' AND (t.due <= deadletter.clock()
        OR t.holder = excluded.holder AND excluded.holder <> ''
        AND coalesce(substring(t.digests FROM length(t.digests) - 15)
            = excluded.digests, true)))
RETURNING id, token
"""
_STANDING: Final = """
SELECT id, generation, state, digests FROM deadletter.ledger WHERE id = ANY($1)
"""
_FINISH: Final = """
UPDATE deadletter.ledger t SET state = g.state, expires_at = deadletter.clock() + $4
FROM unnest($1::bytea[], $2::bigint[], $3::text[]) AS g (id, token, state)
WHERE t.id = g.id AND t.token = g.token AND t.state IN ('processing', g.state)
RETURNING t.id, t.token, t.state
"""
_FORGET: Final = """
WITH gone AS MATERIALIZED (
    SELECT id FROM deadletter.ledger WHERE expires_at <= deadletter.clock()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)
DELETE FROM deadletter.ledger WHERE id = ANY(ARRAY(SELECT id FROM gone)) RETURNING 1
"""
# Claims have no index of their own, because every message would pay for it.
_FORGET_LEFT: Final = """
WITH gone AS MATERIALIZED (
    SELECT id FROM deadletter.ledger
    WHERE state = 'processing' AND due <= deadletter.clock() - $2::interval
    LIMIT $1 FOR UPDATE SKIP LOCKED)
DELETE FROM deadletter.ledger WHERE id = ANY(ARRAY(SELECT id FROM gone)) RETURNING 1
"""
_IN_USE: Final = """
SELECT EXISTS (SELECT 1 FROM deadletter.ledger WHERE state = 'processed')
"""
_MOST: Final = (1 << 63) - 1

_Round: TypeAlias = dict[bytes, tuple[int, LedgerKey]]
"""Different keys by id, each with its place among all that were asked for."""


class PostgresqlLedger:
    """Idempotency keys in the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def begin(self, keys: Sequence[LedgerKey], *, lease: float) -> Sequence[LedgerClaim]:
        """Claim keys for processing, in one transaction."""
        if not keys:
            return []
        ids = [_digest(key) for key in keys]
        rounds = _rounds(keys, ids)
        duration = span(lease)
        if len(rounds) == 1:
            given = [await self._db.fetch(_BEGIN, *_columns(rounds[0]), duration)]
        else:
            given = await self._db.write(lambda c: _begin(c, rounds, duration), within=limit_for())
        tokens = dict(row for rows in given for row in rows)  # the last one counts
        mine = {
            place: tokens[id_]
            for asked, rows in zip(rounds, given, strict=True)
            for id_, token in rows
            for place in [asked[id_][0]]
            if tokens[id_] == token
        }
        if len(mine) == len(keys):
            return [
                LedgerClaim(key, True, LedgerState.PROCESSING, mine[place])
                for place, key in enumerate(keys)
            ]
        others = await self._standing([ids[i] for i in range(len(ids)) if i not in mine])
        return [
            LedgerClaim(key, True, LedgerState.PROCESSING, mine[place])
            if place in mine
            else refused_claim(key, *others[id_][1:])
            for place, (key, id_) in enumerate(zip(keys, ids, strict=True))
        ]

    async def finish(
        self, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Sequence[bool]:
        """Record outcomes; return for each whether the claim was still valid."""
        if not outcomes:
            return []
        told = [(_digest(claim.key), claim.token, state.value) for claim, state in outcomes]
        rows = await self._db.fetch(_FINISH, *zip(*sorted(set(told)), strict=True), span(ttl))
        ours = set(map(tuple, rows))
        return [one in ours for one in told]

    async def look(self, keys: Sequence[LedgerKey]) -> Sequence[LedgerState | None]:
        """Return the states of keys without claiming them."""
        if not keys:
            return []
        ids = [_digest(key) for key in keys]
        found = await self._standing(ids)
        return [
            standing(key, *found[id_]) if id_ in found else None
            for key, id_ in zip(keys, ids, strict=True)
        ]

    async def in_use(self, mailboxes: Sequence[str]) -> bool:
        """Return whether anything was processed; entries do not name their mailbox."""
        ((found,),) = await self._db.fetch(_IN_USE)
        return bool(found)

    async def forget(self, *, limit: int = 1000, abandoned: float | None = None) -> int:
        """Delete expired keys and abandoned claims; return how many."""
        gone = len(await self._db.fetch(_FORGET, limit))
        if abandoned is None or gone >= limit:
            return gone
        left = await self._db.fetch(_FORGET_LEFT, limit - gone, span(abandoned))
        return gone + len(left)

    async def _standing(
        self, ids: Sequence[bytes]
    ) -> dict[bytes, tuple[int, LedgerState, bytes | None]]:
        rows = await self._db.fetch(_STANDING, ids)
        return {id_: (n, LedgerState(state), known) for id_, n, state, known in rows}


async def _begin(connection: Connection, rounds: Sequence[_Round], lease: timedelta) -> list[Rows]:
    return [await connection.fetch(_BEGIN, *_columns(asked), lease) for asked in rounds]


def _rounds(keys: Sequence[LedgerKey], ids: Sequence[bytes]) -> list[_Round]:
    """Keys by id; one that is asked for several times comes in as many rounds."""
    rounds: list[_Round] = [{}]
    for place, (key, id_) in enumerate(zip(keys, ids, strict=True)):
        fitting = next((some for some in rounds if id_ not in some), None)
        if fitting is None:
            fitting = {}
            rounds.append(fitting)
        fitting[id_] = place, key
    return rounds


def _columns(asked: _Round) -> tuple[list[bytes], list[int], list[bytes], list[bytes | None]]:
    # In one order, so that those who ask for the same do not wait in a circle.
    ids = sorted(asked)
    generations = [min(asked[id_][1].generation, _MOST) for id_ in ids]
    return (
        ids,
        generations,
        [octets(asked[id_][1].holder) for id_ in ids],
        [asked[id_][1].digest for id_ in ids],
    )


def _digest(key: LedgerKey) -> bytes:
    mailbox = octets(key.mailbox)
    told = b"%d:%b%b" % (len(mailbox), mailbox, octets(key.key))
    return blake2b(told, digest_size=16).digest()
