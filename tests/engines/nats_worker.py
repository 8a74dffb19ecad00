"""A worker on NATS with its office in a file: `python nats_worker.py URL DIR HOW`."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deadletter.app import App
from deadletter.brokers.nats.mailbox import NatsSource
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy
from deadletter.ports import Acked, Fate, Settlement

_POLICY = DLQPolicy(max_attempts=2, backoff=NoBackoff())


async def make_app(url: str, place: Path) -> App:
    """What says it is bad fails; the rest is noted in a file, a line for each run."""
    effects = os.open(place / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    app = App(url, office=f"sqlite:///{place}/office.db")

    @app.handler("work", policy=_POLICY, lease=2.0, slots=10, brake=None)
    async def handle(body: dict[str, int]) -> None:
        if body["bad"]:
            raise ValueError(f"no good: {body['number']}")
        os.write(effects, f"{body['number']}\n".encode())

    return app


def dying(settle):
    """Settling, by somebody who is gone before he can ack what he has buried."""

    async def settle_or_die(
        source: NatsSource, settlements: Sequence[Settlement]
    ) -> Sequence[bool]:
        for one in settlements:
            if isinstance(one, Acked) and one.fate is Fate.BURIED:
                os._exit(9)
        return await settle(source, settlements)

    return settle_or_die


async def main() -> int:
    async with await make_app(sys.argv[1], Path(sys.argv[2])) as app:
        return await app.work(install_signals=True)


if __name__ == "__main__":
    if sys.argv[3] == "dying":
        NatsSource.settle = dying(NatsSource.settle)
    sys.exit(asyncio.run(main()))
