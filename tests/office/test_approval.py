"""Approval of replays by a second person."""

import pytest
from msgspec import structs

from deadletter.core.campaign import Campaign, Verdict
from deadletter.core.errors import Conflict
from deadletter.core.letter import By
from deadletter.office.approval import approve, check_approved, is_same_person, needs_approval
from deadletter.office.replay import Replay
from deadletter.office.replay_plans import PlanWish
from deadletter.office.replay_sender import ReplaySender
from deadletter.ports import Engine, LetterStore, QueueOptions
from deadletter.system import SystemClock
from office.making import BY, make_letters

OTHER = By("berta", "looks right")


@pytest.fixture
async def campaign(store: LetterStore, engine: Engine, replay: Replay) -> Campaign:
    """A judged plan of three letters."""
    await engine.broker.create(QueueOptions(name="orders"))
    letters = make_letters(3)
    await store.keep(letters)
    frozen = await replay.freeze([one.id for one in letters], BY, query="*")
    while await replay.judge_some(frozen.id):
        pass
    return await replay.status(frozen.id)


def test_replays_up_to_the_limit_need_nobody(campaign: Campaign) -> None:
    assert not needs_approval(campaign, 0)
    assert not needs_approval(campaign, 3)
    assert needs_approval(campaign, 2)
    with pytest.raises(Conflict, match="second person"):
        check_approved(campaign, 2)


async def test_somebody_else_approves_and_it_is_audited(
    store: LetterStore, replay: Replay, campaign: Campaign
) -> None:
    await approve(store, campaign, OTHER, expect=3)

    found = await replay.status(campaign.id)
    check_approved(found, 2)
    assert found.approved_by == "berta"
    entry = (await store.latest_audit(target=campaign.id, limit=1))[0]
    assert (entry.action, entry.actor, entry.reason) == ("approve", "berta", "looks right")


async def test_whoever_planned_it_cannot_approve_it(store: LetterStore, campaign: Campaign) -> None:
    owned = structs.replace(campaign, owner="token-1")

    assert is_same_person(campaign, By("anna"))
    assert is_same_person(owned, By("another name", principal="token-1"))
    assert not is_same_person(owned, By("berta", principal="token-2"))
    with pytest.raises(Conflict, match="somebody else"):
        await approve(store, campaign, By("anna"))


async def test_another_number_of_letters_is_not_approved(
    store: LetterStore, campaign: Campaign
) -> None:
    with pytest.raises(Conflict, match="3 letters, not 4"):
        await approve(store, campaign, OTHER, expect=4)


async def test_what_was_approved_cannot_be_changed(
    store: LetterStore, replay: Replay, campaign: Campaign
) -> None:
    await approve(store, campaign, OTHER)

    with pytest.raises(Conflict, match="as it is"):
        await replay.agree(campaign.id, BY, PlanWish(leave_out=(Verdict.ORDERED,)))
    await replay.agree(campaign.id, BY, PlanWish(), expect=3)


async def test_the_sender_of_a_server_starts_only_what_was_approved(
    store: LetterStore, engine: Engine, replay: Replay, campaign: Campaign
) -> None:
    sender = ReplaySender(
        replay, engine.ledger, "a", clock=SystemClock(), observe=lambda event: None, approve_above=2
    )
    with pytest.raises(Conflict, match="second person"):
        await sender.start(campaign.id, BY)
    await replay.pause(campaign.id, BY)  # is no way around it
    with pytest.raises(Conflict, match="second person"):
        await sender.start(campaign.id, BY)

    await sender.close()


async def test_an_approved_replay_starts(
    store: LetterStore, engine: Engine, replay: Replay, campaign: Campaign
) -> None:
    sender = ReplaySender(
        replay, engine.ledger, "a", clock=SystemClock(), observe=lambda event: None, approve_above=2
    )
    await approve(store, campaign, OTHER)

    started = await sender.start(campaign.id, BY)

    assert started.state == "running"
    await sender.close()
