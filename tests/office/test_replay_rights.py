"""Campaigns are sent only while who let them run may do so."""

from collections.abc import AsyncIterator

import pytest

from deadletter.core.campaign import Campaign, CampaignState, unsent
from deadletter.core.errors import Unavailable
from deadletter.core.letter import By
from deadletter.office import replay_sender
from deadletter.office.replay import Replay
from deadletter.office.replay_sender import ReplaySender
from deadletter.ports import Engine, LetterStore
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from office.making import make_letters

BO = By("bo", "", "p-bo")
WHY = "the token was revoked"


class Rights:
    """Who has lost the right to replay."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self.is_away = False

    async def __call__(self, campaign: Campaign) -> str | None:
        if self.is_away:
            raise Unavailable("gone fishing")
        return WHY if campaign.runs_as in self.lost else None


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
async def senders(
    engine: Engine, replay: Replay, rights: Rights, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[ReplaySender]]:
    """Two servers of one office, which look often."""
    monkeypatch.setattr(replay_sender, "_LOOK", 0.05)
    monkeypatch.setattr(replay_sender, "_BLIND", 0.3)
    some = [
        ReplaySender(
            replay,
            engine.ledger,
            name,
            clock=SystemClock(),
            observe=lambda event: None,
            denied=rights,
        )
        for name in ("a", "b")
    ]
    yield some
    for one in some:
        await one.close()


@pytest.fixture
async def campaign(store: LetterStore, replay: Replay) -> str:
    await store.keep(make_letters(40))
    return (await replay.start("*", BO, rate=0.1)).id


async def paused(store: LetterStore, replay: Replay, campaign: str) -> bool:
    found = await replay.status(campaign)
    last = (await store.audit(target=campaign))[-1]
    return found.state is CampaignState.PAUSED and last.reason == WHY


async def test_a_running_campaign_is_paused_with_the_reason(
    store: LetterStore, replay: Replay, senders: list[ReplaySender], rights: Rights, campaign: str
) -> None:
    await senders[0].send(campaign)
    await eventually(lambda: campaign in senders[0].under_way)
    rights.lost.add("p-bo")

    await eventually(lambda: paused(store, replay, campaign))
    await eventually(lambda: campaign not in senders[0].under_way)


async def test_nothing_is_sent_for_one_who_may_not(
    store: LetterStore, replay: Replay, senders: list[ReplaySender], rights: Rights, campaign: str
) -> None:
    rights.lost.add("p-bo")

    await senders[0].send(campaign)

    await eventually(lambda: paused(store, replay, campaign))
    assert unsent(await replay.status(campaign)) == 40


async def test_one_who_takes_over_asks_first(
    store: LetterStore, replay: Replay, senders: list[ReplaySender], rights: Rights, campaign: str
) -> None:
    await senders[0].send(campaign)
    await senders[0].close()
    rights.lost.add("p-bo")
    before = unsent(await replay.status(campaign))

    await senders[1].adopt()

    await eventually(lambda: paused(store, replay, campaign))
    assert unsent(await replay.status(campaign)) == before


async def test_another_permitted_user_can_resume_a_replay(
    store: LetterStore, replay: Replay, senders: list[ReplaySender], rights: Rights, campaign: str
) -> None:
    rights.lost.add("p-bo")
    await senders[0].send(campaign)
    await eventually(lambda: paused(store, replay, campaign))
    await eventually(lambda: campaign not in senders[0].under_way)

    found = await senders[0].start(campaign, By("anna", "", "p-anna"))

    assert (found.state, found.runs_as) == (CampaignState.RUNNING, "p-anna")
    assert found.owner == "p-bo"

    async def some_are_sent() -> bool:
        return unsent(await replay.status(campaign)) < 40

    await eventually(some_are_sent)


async def test_nothing_more_is_sent_while_nobody_can_tell(
    replay: Replay, senders: list[ReplaySender], rights: Rights, campaign: str
) -> None:
    await senders[0].send(campaign)
    rights.is_away = True

    await eventually(lambda: campaign not in senders[0].under_way)
    found = await replay.status(campaign)
    assert found.state is CampaignState.RUNNING  # for whoever can tell again
