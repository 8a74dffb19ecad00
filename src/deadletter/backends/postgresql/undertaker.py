"""Burying: looking whose it is and keeping its letter are one transaction."""

from collections.abc import Sequence
from typing import Final

from deadletter.ports.burial import Burial
from deadletter.ports.letters import Kept
from deadletter.ports.time import Clock

from .database import Database, limit_for
from .letters_keep import keeping
from .mailboxes import PostgresqlBroker
from .pool import Connection
from .settling import Receipt, ours, rounds

# Held until the end: nobody takes them from us while we write.
_STILL_OURS: Final = f"""
SELECT m.seq, m.token FROM deadletter.messages m WHERE {ours("$2", "$3")} FOR SHARE
"""  # noqa: S608 -- made of constants


class PostgresqlUndertaker:
    """Keeps letters only of what is still ours."""

    def __init__(self, db: Database, broker: PostgresqlBroker, clock: Clock) -> None:
        self._db = db
        self._broker = broker
        self._clock = clock

    async def bury(self, burials: Sequence[Burial]) -> Sequence[Kept | None]:
        """Keep the letters of deliveries that are still ours, in one transaction."""
        if not burials:
            return []
        deliveries = [burial.delivery for burial in burials]
        box = await self._broker.number(deliveries[0].mailbox)
        asked = rounds(delivery.receipt for delivery in deliveries)
        everything = keeping(
            [one.letter for one in burials], self._clock.now(), self._db.group_limit
        )

        async def bury(connection: Connection) -> list[Kept | None]:
            held: set[Receipt] = set()
            for some in asked:
                given = (list(some), list(some.values()))
                held.update(
                    (seq, token)
                    for seq, token in await connection.fetch(_STILL_OURS, box, *given)
                )
            mine = [burial for burial in burials if burial.delivery.receipt in held]
            if len(mine) == len(burials):
                return [*await everything(connection)]
            letters = [burial.letter for burial in mine]
            keep = keeping(letters, self._clock.now(), self._db.group_limit, looks=True)
            kept = iter(await keep(connection))
            return [
                next(kept) if burial.delivery.receipt in held else None
                for burial in burials
            ]

        size = sum(len(burial.letter.message.body) for burial in burials)
        return await self._db.write(bury, within=limit_for(size))
