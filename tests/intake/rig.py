"""What tests of draining share: an office, an intake, and recorded messages."""

import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deadletter.core.campaign import Care
from deadletter.core.letter import By, DeadLetter
from deadletter.core.query.ast import EVERYTHING
from deadletter.intake.dialects import Trusted
from deadletter.office.replay import Replay
from deadletter.ports import Drain, Foreign, LetterStore
from deadletter.runtime.drain_loop import Intake
from deadletter.stores.memory import MemoryEngine
from deadletter.system import SystemClock
from deadletter.testing.fakes import SeededDice
from deadletter.wiring.foreign import WayBack

RECORDED = Path(__file__).with_name("recorded")
BY = By("tester")


def recorded(name: str) -> dict[str, Any]:
    """What a real framework wrote; `made_with` says which."""
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def raw(text: str) -> bytes:
    return b64decode(text)


def intake(drain: Drain, office: MemoryEngine, *sources: str) -> Intake:
    return Intake(
        drain=drain,
        letters=store(office),
        clock=SystemClock(),
        dice=SeededDice(),
        observe=lambda event: None,
        trusted=Trusted(sources),
    )


def store(office: MemoryEngine) -> LetterStore:
    assert office.letters is not None
    return office.letters


async def drained(drain: Drain, office: MemoryEngine, *sources: str) -> list[DeadLetter]:
    """Empty a place, whose headers may name these mailboxes; the letters as kept."""
    loop = intake(drain, office, *sources)
    ids: list[str] = []
    while taken := await loop.once(1000):
        ids += [one.kept.id for one in taken if one.kept is not None]
    await loop.end()
    return list(await store(office).get(ids))


async def letters(office: MemoryEngine) -> Sequence[DeadLetter]:
    """Everything in an office."""
    page = await store(office).find(EVERYTHING, limit=1000)
    return await store(office).get([head.id for head in page.heads])


async def sent_back(
    foreign: Foreign, url: str, office: MemoryEngine, *, to: str | None = None
) -> list[str]:
    """Replay everything through a server; why letters were refused."""
    replay = Replay(store(office), WayBack(foreign, url), SystemClock(), SeededDice())
    campaign = await replay.start("is:pending", BY, to=to, care=Care(key_order=False))
    await replay.run(campaign.id)
    items = (await store(office).campaign_items(campaign.id, limit=1000)).items
    return [one.why for one in items if one.why]
