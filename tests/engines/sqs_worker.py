"""A worker on SQS with its office in a file: `python sqs_worker.py URL DIR HOW`."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deadletter.app import App
from deadletter.brokers.sqs.engine import SqsSource
from deadletter.core.backoff import NoBackoff
from deadletter.core.policy import DLQPolicy
from deadletter.ports import Acked, Fate, Settlement

POLICY = DLQPolicy(max_attempts=2, backoff=NoBackoff())


async def make_app(url: str, place: Path) -> App:
    """Bad messages fail, poison ends the process, the others are noted in a file."""
    app = App(url, office=f"sqlite:///{place}/office.db")
    effects = os.open(place / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.handler("work", policy=POLICY, lease=2.0, slots=10, brake=None)
    async def handle(body: dict[str, str]) -> None:
        await asyncio.sleep(0.001)
        match body["kind"]:
            case "poison":
                os._exit(9)
            case "bad":
                raise ValueError(f"no good: {body['number']}")
        os.write(effects, f"{body['number']}\n".encode())

    return app


def die_between_keep_and_ack() -> None:
    """Be gone at the moment that a letter is kept and its message is not yet acked."""
    settle = SqsSource.settle

    async def dying(self: SqsSource, settlements: Sequence[Settlement]) -> Sequence[bool]:
        if any(isinstance(s, Acked) and s.fate is Fate.BURIED for s in settlements):
            os._exit(9)
        return await settle(self, settlements)

    SqsSource.settle = dying  # type: ignore[method-assign]


async def main(url: str, place: Path) -> int:
    """Work until told to stop."""
    async with await make_app(url, place) as app:
        return await app.work(install_signals=True)


if __name__ == "__main__":
    if sys.argv[3] == "dying":
        die_between_keep_and_ack()
    sys.exit(asyncio.run(main(sys.argv[1], Path(sys.argv[2]))))
