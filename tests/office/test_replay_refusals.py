"""One letter that its server does not take: the others go on, and none goes twice."""

from collections.abc import Sequence

import pytest

from deadletter.core.campaign import CampaignState, Care, Outcome
from deadletter.core.errors import DeadLetterError, NotFound, PartlySent, Refused, Unavailable
from deadletter.core.letter import By, State
from deadletter.core.message import Message
from deadletter.office.letters import Letters
from deadletter.office.replay import Replay
from deadletter.office.replay_steps import send_each
from deadletter.ports import LetterStore
from deadletter.testing.fakes import FakeClock, SeededDice

from .making import make_letter

BY = By("tester")


class Server:
    """Mailboxes of others: some are missing, some messages are refused."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.missing: set[str] = set()
        self.refused: set[str] = set()
        self.down_at: str | None = None
        self.in_turn = True  # it takes what it can; otherwise all or nothing

    def sink(self, mailbox: str) -> "Box":
        return Box(self, mailbox)

    async def queues(self) -> None:
        return None


class Box:
    def __init__(self, server: Server, mailbox: str) -> None:
        self.mailbox = mailbox
        self._server = server

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        server = self._server
        if self.mailbox in server.missing:
            raise NotFound(f"there is no queue {self.mailbox}")
        bad = [n for n, one in enumerate(messages) if one.id in server.refused]
        if bad and not server.in_turn:
            raise Refused("a header is refused")
        sent: list[int] = []
        refused: dict[int, DeadLetterError] = {n: Refused("a header is refused") for n in bad}
        for place, one in enumerate(messages):
            if one.id == server.down_at:
                raise PartlySent(sent=sent, refused=refused, cause=Unavailable("gone"))
            if place not in bad:
                server.sent.append(one.id)
                sent.append(place)
        if refused:
            raise PartlySent(sent=sent, refused=refused)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def replay(store: LetterStore, server: Server, clock: FakeClock, dice: SeededDice) -> Replay:
    return Replay(store, server, clock, dice)


async def keep(store: LetterStore, count: int, source: str = "orders") -> list[str]:
    letters = [make_letter(message_id=f"{source}-{n}", source=source) for n in range(count)]
    return [kept.id for kept in await store.keep(letters)]


async def outcomes(store: LetterStore, campaign: str) -> dict[Outcome, int]:
    (found,) = await store.campaigns(begins=campaign)
    return found.counts


async def test_a_missing_queue_does_not_stop_the_letters_of_another(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    gone, there = await keep(store, 3, "gone"), await keep(store, 3, "orders")
    server.missing = {"gone"}

    campaign = await replay.start("", BY)
    found = await replay.run(campaign.id)

    assert sorted(server.sent) == ["orders-0", "orders-1", "orders-2"]
    assert found.counts == {Outcome.REFUSED: 3, Outcome.SENT: 3}
    items = await store.replays(gone)
    assert {one.why for one in items} == {"there is no queue gone"}
    states = {one.id: one.head.state for one in await store.get([*gone, *there])}
    assert [states[id_] for id_ in gone] == [State.PENDING] * 3
    assert [states[id_] for id_ in there] == [State.REPLAYING] * 3


@pytest.mark.parametrize("in_turn", [True, False])
async def test_a_refused_message_does_not_stop_its_neighbours(
    store: LetterStore, replay: Replay, server: Server, in_turn: bool
) -> None:
    await keep(store, 7)
    server.refused, server.in_turn = {"orders-2", "orders-5"}, in_turn

    campaign = await replay.start("", BY)
    found = await replay.run(campaign.id)

    expected = ["orders-0", "orders-1", "orders-3", "orders-4", "orders-6"]
    assert sorted(server.sent) == expected
    assert found.counts == {Outcome.REFUSED: 2, Outcome.SENT: 5}


async def test_copies_sent_before_an_interruption_are_not_sent_again(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, 6)
    server.down_at, server.refused = "orders-3", {"orders-1"}
    campaign = await replay.start("", BY)

    with pytest.raises(Unavailable, match="gone"):
        await replay.run(campaign.id)
    before = list(server.sent)
    server.down_at = None
    found = await replay.run(campaign.id)

    assert before
    assert sorted(server.sent) == [f"orders-{n}" for n in (0, 2, 3, 4, 5)]
    assert found.counts == {Outcome.REFUSED: 1, Outcome.SENT: 5}


async def test_letters_behind_a_refused_one_of_their_key_are_held(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    letters = [make_letter(message_id=f"orders-{n}", key="k") for n in range(3)]
    await store.keep(letters)
    server.refused = {"orders-0", "orders-1", "orders-2"}

    campaign = await replay.start("", BY)
    found = await replay.run(campaign.id)

    assert found.state is CampaignState.DONE
    assert found.counts == {Outcome.REFUSED: 1, Outcome.HELD: 2}


async def test_cancelling_leaves_no_letter_replaying_that_was_never_sent(
    store: LetterStore, replay: Replay, server: Server, clock: FakeClock
) -> None:
    ids = await keep(store, 4)
    server.down_at = "orders-0"
    campaign = await replay.start("", BY, care=Care(key_order=False))
    with pytest.raises(Unavailable):
        await replay.run(campaign.id)
    assert {one.head.state for one in await store.get(ids)} == {State.REPLAYING}

    await replay.pause(campaign.id, BY)
    found = await replay.cancel(campaign.id, BY)

    assert found.state is CampaignState.CANCELLED
    assert {one.head.state for one in await store.get(ids)} == {State.PENDING}
    assert found.counts == {Outcome.UNCONFIRMED: 4}
    await Letters(store, clock).close(ids, BY)
    assert {one.head.state for one in await store.get(ids)} == {State.CLOSED}


async def test_a_batch_refused_as_a_whole_is_halved_in_order() -> None:
    server = Server()
    server.in_turn, server.refused = False, {"3"}
    clock = FakeClock()
    messages = [Message(id=str(n), body=b"", sent_at=clock.now()) for n in range(9)]

    done = await send_each(Box(server, "orders"), messages)

    assert server.sent == ["0", "1", "2", "4", "5", "6", "7", "8"]
    assert (done.sent, [*done.refused]) == (set(range(9)) - {3}, [3])
