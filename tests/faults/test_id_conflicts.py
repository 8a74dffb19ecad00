"""
One id, several bodies, while workers are killed: no body disappears.

Every body that was sent is handled or kept in a letter: those under an id that was
used before, and those that were put into replayed copies on their way.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from deadletter.app import App
from deadletter.core.letter import By, DeadLetter
from deadletter.core.message import Message
from deadletter.office.replay import Replay
from deadletter.office.verify import verify
from deadletter.ports import Acked, Engine, Fate
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from faults.worker_processes import Workers, drained

SCRIPT = Path(__file__).parent / "conflict_worker.py"
SEED = 20261117
BY = By("anna", "mended")


@pytest.mark.faults
@pytest.mark.slow
def test_no_body_disappears_under_an_id_that_was_used_before(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ids = 1_000 if request.config.getoption("--long") else 40
    kills = 100 if request.config.getoption("--long") else 4
    counts = asyncio.run(_storm(tmp_path, ids, kills))
    print("\n" + ", ".join(f"{n:,} {what}" for what, n in counts.items()))


async def _storm(place: Path, ids: int, kills: int) -> dict[str, int]:
    draw = random.Random(SEED)
    workers = Workers(SCRIPT, place, 2)
    async with App(f"sqlite:///{place}/office.db") as app:
        engine = await app.engine()
        try:
            workers.keep_up()
            sent = await _send(app, ids, draw)
            for n in range(kills):
                await _begun(place, n * ids // kills // 2)
                workers.kill_one(draw.randrange(2))
            await drained(app, "work", workers.keep_up)
            changed = await _replay_changed(engine)
            await drained(app, "work", workers.keep_up)
        finally:
            workers.end()
        letters = await _letters(app)
        found = await verify(engine.broker, engine.letters)
    handled = set((place / "effects").read_bytes().splitlines())
    kept = {letter.message.body for letter in letters}
    lost = (sent | changed) - handled - kept
    assert lost == set(), "LOST"
    assert found.ok, found.findings
    # Of each id one body was handled at most, and only what failed or was another
    # than that one is kept.
    ids_handled = [body.split()[1] for body in handled]
    assert len(set(ids_handled)) == len(ids_handled), "TWO BODIES OF ONE ID HANDLED"
    assert len(kept) == len(letters), "DOUBLE LETTER"
    conflicts = {letter.id for letter in letters if letter.head.conflict}
    assert found.conflicts.total >= len(conflicts) > 0
    assert changed <= {letter.message.body for letter in letters if letter.head.conflict}
    return {
        "bodies sent": len(sent),
        "bodies handled": len(handled),
        "letters": len(letters),
        "of them marked id-conflict": len(conflicts),
        "copies changed on their way": len(changed),
        "workers killed": kills,
        "bodies lost": len(lost),
    }


async def _begun(place: Path, bodies: int) -> None:
    """Wait until more bodies than this were handled."""

    async def is_begun() -> bool:
        effects = place / "effects"
        return effects.exists() and len(effects.read_bytes().splitlines()) > bodies

    await eventually(is_begun, within=30)


async def _send(app: App, ids: int, draw: random.Random) -> set[bytes]:
    """Send three bodies under each id, one of them twice and some of them bad."""
    bodies = [
        (n, b"%s %d %d" % (draw.choice([b"good", b"good", b"bad"]), n, part))
        for n in range(ids)
        for part in range(3)
    ]
    messages = [*bodies, *draw.sample(bodies, k=ids // 2)]
    draw.shuffle(messages)
    for n, body in messages:
        await app.send("work", body, id=f"m-{n}")
    return {body for _, body in bodies}


async def _replay_changed(engine: Engine) -> set[bytes]:
    """Send letters back through somebody who puts other bodies into the copies."""
    assert engine.letters is not None
    replay = Replay(engine.letters, engine.broker, SystemClock(), SystemDice())
    campaign = await replay.start("is:open reason:attempts-exhausted", BY, to="relay", limit=40)
    await replay.run(campaign.id)
    relay, changed = engine.broker.source("relay"), list[Message]()
    while copies := await relay.receive(limit=20, wait=0.2, lease=30):
        some = [replace(one.message, body=one.message.body + b" changed") for one in copies]
        await engine.broker.sink("work").send(some)
        await relay.settle([Acked(one, Fate.HANDLED) for one in copies])
        changed += some
    assert changed
    return {message.body for message in changed}


async def _letters(app: App) -> Sequence[DeadLetter]:
    store = await app.letters()
    found: list[DeadLetter] = []
    after = None
    while True:
        page = await store.find(limit=500, after=after)
        found += await store.get([head.id for head in page.heads])
        after = page.after
        if after is None:
            return found
