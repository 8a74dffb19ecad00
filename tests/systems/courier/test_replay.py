"""Dead events go back, are truly processed, and keep all that they were."""

import msgspec
import pytest

from courier.replay import Desk, Wish, parsed, told
from deadletter import State
from deadletter.core.campaign import Outcome, Verdict
from deadletter.core.letter import By
from deadletter.office.letters import Letters
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from systems.courier.rig import Rig, states_in

pytestmark = pytest.mark.xdist_group("mongodb_server")

ANNA = By("anna", "the depot is back")


async def desk(rig: Rig) -> Desk:
    return Desk(await rig.office.engine())


async def died(rig: Rig, *ids: str, message: str = "validation failed") -> None:
    """Let these events die, the worker is at rest again afterwards."""
    rig.fault(status=422, message=message)
    for event_id in ids:
        await rig.report(event_id)
    await rig.work()

    async def are_dead() -> bool:
        dead = {one.head.business_key for one in await rig.letters()}
        return {f"courier-x:{event_id}" for event_id in ids} <= dead

    await eventually(are_dead, within=20)
    await rig.rest()
    rig.stand.faults.clear()
    rig.stand.seen.clear()


async def test_a_replayed_event_is_truly_processed(rig: Rig) -> None:
    await died(rig, "evt_123")
    await rig.work()

    sent = await (await desk(rig)).replay(Wish(limit=1, by=ANNA, wait=20))

    assert sent.campaign is not None
    assert sent.campaign.counts == {Outcome.CONFIRMED: 1}
    assert [one.event_id for one in rig.stand.seen] == ["evt_123"]
    record = await rig.ledger()
    assert (record["state"], record["generation"]) == ("processed", 1)
    assert [step["state"] for step in record["path"]] == [
        *("received", "processing", "failed", "dead_lettered"),
        *("received", "processing", "processed"),
    ]
    assert (await rig.letter()).head.state is State.REPLAYED


async def test_replayed_means_seen_by_the_worker_not_sent(rig: Rig) -> None:
    await died(rig, "evt_123")

    sent = await (await desk(rig)).replay(Wish(limit=1, by=ANNA))

    assert sent.campaign is not None
    assert sent.campaign.counts == {Outcome.SENT: 1}
    assert (await rig.letter()).head.state is State.REPLAYING
    await rig.work()
    await rig.until_letter(State.REPLAYED)


async def test_a_replayed_event_is_the_one_that_was_queued_byte_for_byte(rig: Rig) -> None:
    await died(rig, "evt_123")
    dead = (await rig.letter()).message

    await (await desk(rig)).replay(Wish(limit=1, by=ANNA))

    broker = (await rig.office.engine()).broker
    source = broker.source("courier-events-main")
    (copy,) = await source.receive(limit=10, wait=0, lease=60)
    assert copy.message.body == dead.body
    assert copy.message.headers == dead.headers
    event = msgspec.json.decode(copy.message.body)
    assert event["source"] == "courier-x"
    assert event["occurredAt"] == "2026-02-26T12:00:00Z"
    assert event["signatureMeta"]["signature"]
    assert copy.attempt == 1  # a new count
    assert copy.message.lineage is not None


async def test_review_states_follow_one_another_and_are_audited(rig: Rig) -> None:
    await died(rig, "evt_123")
    letter = await rig.letter()
    letters = Letters(await rig.office.letters(), SystemClock())
    await rig.work()

    async with rig.watching("dead_letter_events") as changes:
        await (await desk(rig)).replay(Wish(limit=1, by=ANNA, wait=20))
        await letters.close([letter.id], By("bob", "delivered"))
        await eventually(lambda: "closed" in states_in(changes), within=10)

    assert letter.head.state is State.PENDING
    # Sent is not yet replayed: in between, its outcome is not known.
    assert states_in(changes) == ["reviewed", "replaying", "replayed", "closed"]
    audit = rig.db["dead_letter_audit"].find({"target": letter.id}).sort("_id")
    acts = [(one["actor"], one["reason"]) async for one in audit]
    assert acts[0] == ("anna", "the depot is back")
    assert acts[-1] == ("bob", "delivered")


async def test_a_letter_can_be_reviewed_without_replaying_and_reopened(rig: Rig) -> None:
    await died(rig, "evt_123")
    letters = Letters(await rig.office.letters(), SystemClock())
    id_ = (await rig.letter()).id

    await letters.review([id_], ANNA)
    assert (await rig.letter()).head.state is State.REVIEWED
    assert (await letters.review([id_], ANNA)).moved == 0  # it is reviewed already
    await letters.reopen([id_], ANNA)

    assert (await rig.letter()).head.state is State.PENDING


async def test_the_limit_counts_and_the_rest_stays(rig: Rig) -> None:
    await died(rig, "evt_1", "evt_2", "evt_3")
    await rig.work()

    sent = await (await desk(rig)).replay(Wish(limit=2, by=ANNA, wait=20))

    assert len(sent.ids) == 2
    assert sorted(one.event_id for one in rig.stand.seen) == ["evt_1", "evt_2"]  # the oldest
    states = {one.head.business_key: one.head.state for one in await rig.letters()}
    assert states["courier-x:evt_3"] is State.PENDING
    assert sorted(states.values()) == [State.PENDING, State.REPLAYED, State.REPLAYED]


async def test_what_is_left_alone_does_not_count_for_the_limit(rig: Rig) -> None:
    await died(rig, "evt_1", "evt_2")
    await rig.report("evt_1")
    await rig.work()
    await rig.until("processed", "courier-x:evt_1")

    sent = await (await desk(rig)).replay(Wish(limit=1, by=ANNA, wait=20))

    assert len(sent.ids) == 1
    assert [one.event_id for one in rig.stand.seen] == ["evt_1", "evt_2"]


async def test_letters_can_be_chosen_by_what_they_are(rig: Rig) -> None:
    await died(rig, "evt_1", message="validation failed")
    await died(rig, "evt_2", message="malformed address")
    at = await desk(rig)

    async def would(where: str) -> int:
        wish = Wish(limit=10, where=where, by=ANNA, dry_run=True)
        return len((await at.replay(wish)).ids)

    assert await would("") == 2
    assert await would("code:MALFORMED") == 1
    assert await would('"courier-x:evt_1"') == await would("body.eventId:evt_1") == 1
    assert await would("since:1h") == 2
    assert await would("age:>1h") == 0
    assert await would("code:MALFORMED OR code:VALIDATION") == 2


async def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    await died(rig, "evt_123")

    wish = Wish(limit=5, by=ANNA, dry_run=True)
    sent = await (await desk(rig)).replay(wish)

    assert sent.verdicts == {Verdict.READY: 1}
    assert told(wish, sent) == ["1 dead event would go to courier-events-main."]
    assert (await rig.letter()).head.state is State.PENDING
    assert await rig.waiting() == []


async def test_events_processed_meanwhile_are_not_replayed(rig: Rig) -> None:
    await died(rig, "evt_123")
    await rig.report("evt_123")  # the courier sends it again, and now it works
    await rig.work()
    await rig.until("processed")

    wish = Wish(limit=5, by=ANNA)
    sent = await (await desk(rig)).replay(wish)

    assert sent.campaign is None
    assert told(wish, sent) == ["1 left alone: already-processed", "None sent."]
    assert len(rig.stand.seen) == 1


async def test_replayed_events_that_fail_again_return_to_their_letter(rig: Rig) -> None:
    await died(rig, "evt_123")
    rig.fault(status=422, message="malformed address")
    await rig.work()

    sent = await (await desk(rig)).replay(Wish(limit=1, by=ANNA, wait=20))
    await rig.rest()

    assert sent.campaign is not None
    assert sent.campaign.counts == {Outcome.FAILED: 1}
    letter = await rig.letter()
    assert letter.head.state is State.PENDING
    assert [one.code for one in letter.story()] == ["VALIDATION", "MALFORMED"]
    copies = await rig.copies()
    codes = [one["terminalReasonCode"] for one in copies]
    assert codes == ["VALIDATION", "MALFORMED"]  # each death is told in the queue
    assert (await rig.ledger())["state"] == "dead_lettered"


async def test_the_command_replays_and_says_so(rig: Rig) -> None:
    await died(rig, "evt_1", "evt_2")
    await rig.work()

    said = await rig.command("courier.replay", "--limit", "1", "--wait", "20")

    assert said.splitlines()[0].startswith("1 dead event sent to courier-events-main")
    assert said.splitlines()[1] == "1 confirmed"
    assert len(rig.stand.seen) == 1
    dry = await rig.command(
        "courier.replay", "--limit", "9", "--dry-run", "--where", "code:VALIDATION"
    )
    assert dry == "1 dead event would go to courier-events-main.\n"


@pytest.mark.parametrize(
    "arguments", [[], ["--limit", "0"], ["--limit", "x"], ["--limit", "1", "--rate", "0"]]
)
def test_a_limit_must_be_said_and_make_sense(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed(arguments)

    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err
