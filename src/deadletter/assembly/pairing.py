"""
Two engines as one: messages on the one, letters in the other.

Queues that cannot keep letters (Redis, SQS, Kafka, RabbitMQ, NATS) are paired with
an office that can. Everybody else sees one engine.
"""

from deadletter.core.errors import ConfigError
from deadletter.ports import (
    AccessStore,
    Broker,
    Engine,
    Guards,
    ItemStore,
    Ledger,
    Lends,
    LetterStore,
    LocksFile,
    Postman,
    Undertaker,
    loss_of,
)


class Paired:
    """
    Mailboxes of one engine, the office of another.

    Items are kept where messages are, tokens where letters are, or with the other.
    """

    lock_problem: str | None
    items: ItemStore  # where one of the two can
    access: AccessStore

    def __init__(self, queue: Engine, office: Engine) -> None:
        if office.letters is None:
            raise ConfigError(
                f"{office.features.engine} cannot keep letters: give an office that "
                "can, such as sqlite:///office.db"
            )
        self.features = queue.features
        self.broker: Broker = queue.broker
        self.letters: LetterStore | None = office.letters
        self.ledger: Ledger | None = queue.ledger or office.ledger
        # Claims here and letters there cannot be one transaction.
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
        for engine in (queue, office):
            if isinstance(engine, LocksFile):
                self.lock_problem = engine.lock_problem
        for engine in (office, queue):
            if isinstance(engine, Lends):
                self.items = engine.items
        for engine in (queue, office):
            if isinstance(engine, Guards):
                self.access = engine.access
        self._engines = (queue, office)

    def lost(self) -> str | None:
        """Return why one of the two cannot be used any more; None while both can."""
        return next(filter(None, map(loss_of, self._engines)), None)

    async def close(self) -> None:
        """Let go of both."""
        for engine in self._engines:
            await engine.close()
