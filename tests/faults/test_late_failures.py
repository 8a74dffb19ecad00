"""
Copies that are confirmed and fail afterwards, because the ack was lost.

A worker dies between confirming copies and acking them. They are delivered again and
fail: their replay counts them as failed, its report says so, and it stops by itself.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.core.campaign import Campaign, CampaignState, Care, Outcome
from deadletter.core.letter import By, State
from deadletter.office.replay import ITSELF, Replay
from deadletter.office.verify import verify
from deadletter.system import SystemClock, SystemDice
from faults.worker_processes import Workers, drained

SCRIPT = Path(__file__).parent / "confirming_worker.py"
BY = By("anna", "mended")


@pytest.mark.faults
@pytest.mark.slow
def test_copies_that_fail_after_they_were_confirmed_have_failed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    letters = 200 if request.config.getoption("--long") else 12
    campaign, late, deaths = asyncio.run(_lose_acks(tmp_path, letters))
    report = [sys.executable, "-m", "deadletter.cli", "replay", "report", campaign.id]
    url = f"sqlite:///{tmp_path}/office.db"
    shown = subprocess.run([*report, "--url", url], capture_output=True, text=True, check=False)

    print(f"\n{deaths} workers died, {late} copies failed after they were confirmed")
    assert campaign.state is CampaignState.PAUSED
    assert shown.returncode == 6, shown
    words = " ".join(shown.stdout.split())
    were = "letter was" if late == 1 else "letters were"
    assert f"{late} {were} confirmed, then failed again, " in words


async def _lose_acks(place: Path, letters: int) -> tuple[Campaign, int, int]:
    workers = Workers(SCRIPT, place, 1)
    async with App(f"sqlite:///{place}/office.db") as app:
        engine = await app.engine()
        assert engine.letters is not None
        store = engine.letters
        try:
            workers.keep_up()
            for n in range(letters):
                await app.send("work", b"x", id=f"m-{n}")
            await drained(app, "work", workers.keep_up)
            replay = Replay(store, engine.broker, SystemClock(), SystemDice())
            canary = letters // 2
            campaign = await replay.start("is:open", BY, care=Care(canary=canary))
            running = asyncio.create_task(replay.run(campaign.id))
            while not running.done():
                workers.keep_up()
                await asyncio.sleep(0.05)
            await drained(app, "work", workers.keep_up)
            campaign = await replay.status(campaign.id)
        finally:
            running.cancel()
            workers.end()
        assert campaign.counts.get(Outcome.CONFIRMED, 0) == 0, campaign
        assert campaign.counts[Outcome.FAILED] == letters // 2, campaign
        page = await store.campaign_items(campaign.id, limit=letters)
        late = {item.letter_id for item in page.items if item.failed_late}
        counts = (await store.counts())["work"]
        found = await verify(engine.broker, store)
        (*_, last) = await store.audit(target=campaign.id, limit=10)
    assert last.actor == ITSELF, last
    confirmed = (place / "confirmed").read_text().split()
    assert late == set(confirmed), "CONFIRMED, FAILED AGAIN, AND NOT REPORTED"
    assert counts[State.PENDING] == letters - counts.get(State.REPLAYED, 0)
    assert found.ok, found.findings
    return campaign, len(late), workers.deaths
