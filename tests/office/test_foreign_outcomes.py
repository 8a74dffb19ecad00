"""Outcomes of consumers of others: presumed, told by their server, or confirmed."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from deadletter.core.campaign import Campaign, CampaignState, Care, Outcome, Verdict
from deadletter.core.errors import ConfigError, Conflict, Refused, Unavailable
from deadletter.core.letter import By, DeadLetter, State
from deadletter.core.message import Lineage, Message
from deadletter.core.origin import marked
from deadletter.core.replay_rules import Arrival, CopyState
from deadletter.intake.dialects import Origin
from deadletter.office.outcomes import confirm_messages, settle_all
from deadletter.office.replay import Replay
from deadletter.office.replay_steps import copy_of
from deadletter.ports import CopyTrace, KeyRing, LetterStore, ReplaySettled, SentCopy
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.foreign import Ways, server_label

from .making import make_letter

BY = By("tester")
SHOP = "amqp://guest:secret@shop:5672/live"


class Server:
    """A server of others, as a way back, that may tell outcomes."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.states: dict[str, CopyState] = {}
        self.probe: Server | None = None
        self.finder: Server | None = None
        self.mailbox = ""
        self.traces: dict[str, CopyTrace] = {}
        self.asked: list[SentCopy] = []
        self.on_send: Callable[[], None] = lambda: None
        self.in_use: set[str] = set()
        self.is_down = self.gives_new_ids = False
        self.probed: Sequence[SentCopy] = ()

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        self.asked += copies
        return [self.traces[copy.message.id] for copy in copies]

    def sink(self, mailbox: str) -> "Server":
        self.mailbox = mailbox
        return self

    async def queues(self) -> None:
        return None

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        self.sent += messages
        self.on_send()

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        self.probed = copies
        unknown = CopyState.UNKNOWN
        return [self.states.get(copy.message.id, unknown) for copy in copies]


class OneWay:
    """The only server that settings name is `shop`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def way_of(self, server: str) -> str | None:
        return "shop" if server in {"shop", server_label(SHOP)} else None

    def check(self, name: str, message: Message, mailbox: str) -> None:
        if mailbox == "nowhere":
            raise Refused("it does not say where it came from")

    async def ids_in_use(
        self, name: str, messages: Sequence[tuple[str, Message]]
    ) -> Sequence[bool]:
        if self._server.is_down:
            raise Unavailable("no answer")
        return [message.id in self._server.in_use for _, message in messages]

    @asynccontextmanager
    async def open(self, name: str, *, new_ids: bool = False) -> AsyncIterator[Server]:
        assert name == "shop"
        self._server.gives_new_ids = new_ids
        yield self._server


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def replay(store: LetterStore, server: Server, clock: FakeClock, dice: SeededDice) -> Replay:
    return Replay(store, Server(), clock, dice, ways=OneWay(server), presume_after=600.0)


def drained(number: int, server: str = "shop", source: str = "orders") -> DeadLetter:
    letter = make_letter(number, source=source)
    origin = Origin("rabbitmq", f"{source}.dead", server=server)
    return structs.replace(letter, message=marked(letter.message, origin))


async def keep(store: LetterStore, *letters: DeadLetter) -> list[str]:
    return [kept.id for kept in await store.keep(letters)]


async def counts(store: LetterStore) -> dict[Outcome, int]:
    (found,) = await store.campaigns()
    return found.counts


async def sent(replay: Replay, **how: float) -> Campaign:
    campaign = await replay.start("", BY, care=Care(**how))
    return await replay.run(campaign.id)


async def state(store: LetterStore, id_: str) -> State:
    (letter,) = await store.get([id_])
    return letter.head.state


async def test_drained_letters_find_their_server_by_themselves(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, drained(1), drained(2, server_label(SHOP)))

    campaign = await sent(replay)

    assert (campaign.through, campaign.care.presume_after) == ("shop", 600.0)
    assert sorted(one.id for one in server.sent) == ["m-1", "m-2"]
    assert campaign.counts == {Outcome.SENT: 2}


async def test_a_letter_of_an_unknown_server_is_not_sent_unless_asked(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, drained(1, "amqp://elsewhere:5672"))

    plan = await replay.plan("")
    with pytest.raises(Conflict, match=r"\[sources.NAME\]"):
        await replay.start("", BY)
    there = await replay.plan("", through="shop")
    here = await replay.plan("", to="ours")

    assert plan.verdicts == {Verdict.ELSEWHERE: 1}
    assert (there.sendable, there.through) == (1, "shop")
    assert (here.sendable, here.through) == (1, "")


async def test_letters_of_other_servers_are_left_out_of_a_replay(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, drained(1, source="nowhere"), make_letter(2), make_letter(3))

    plan = await replay.plan("source:orders")
    whole = await replay.plan("", through="shop")

    assert (plan.sendable, plan.through) == (2, "")
    assert whole.verdicts == {Verdict.ELSEWHERE: 1, Verdict.READY: 2}


async def test_a_copy_is_presumed_handled_when_its_time_is_over(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    (id_,) = await keep(store, drained(1))
    campaign = await sent(replay)

    clock.advance(599)
    early = await replay.settle_others()
    clock.advance(1)
    late = await replay.settle_others()

    assert (early, late) == (0, 1)
    assert await state(store, id_) is State.REPLAYED
    assert await counts(store) == {Outcome.PRESUMED: 1}
    assert (await replay.status(campaign.id)).state is CampaignState.DONE


async def test_nothing_is_presumed_where_it_is_told_never(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    await keep(store, drained(1))
    await sent(replay, presume_after=0)

    clock.advance(86_400)

    assert await replay.settle_others() == 0


async def test_outcomes_known_to_the_server_take_precedence_over_presumed_ones(
    store: LetterStore, replay: Replay, server: Server, clock: FakeClock
) -> None:
    await keep(store, *(drained(n) for n in range(1, 5)))
    server.probe = server
    server.states = {"m-1": CopyState.HANDLED, "m-2": CopyState.THERE, "m-3": CopyState.DEAD}
    await sent(replay)

    at_once = await replay.settle_others()
    clock.advance(601)
    later = await replay.settle_others()

    assert (at_once, later) == (1, 1)
    expected = {Outcome.CONFIRMED: 1, Outcome.PRESUMED: 1, Outcome.SENT: 2}
    assert await counts(store) == expected


async def test_a_server_is_asked_about_the_copy_that_was_sent(
    store: LetterStore, replay: Replay, server: Server, clock: FakeClock
) -> None:
    (id_,) = await keep(store, drained(1))
    server.probe = server
    server.on_send = lambda: clock.advance(5)  # its worker is quicker than our notes
    campaign = await sent(replay)

    await replay.settle_others()

    [asked] = server.probed
    [copy] = server.sent
    wanted = Lineage(letter_id=id_, generation=1, campaign=campaign.id)
    assert asked.message.lineage == wanted
    assert copy.lineage is not None
    assert (copy.lineage.letter_id, copy.lineage.generation) == (id_, 1)
    assert (asked.mailbox, asked.generation) == ("orders", 1)
    assert asked.sent_at <= campaign.created_at


async def test_cancelled_replays_are_settled_as_well(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    (id_,) = await keep(store, drained(1))
    campaign = await sent(replay)
    await replay.cancel(campaign.id, BY)

    clock.advance(601)
    await replay.settle_others()

    assert await state(store, id_) is State.REPLAYED


async def test_copies_of_a_server_that_nothing_names_are_presumed_too(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    await keep(store, drained(1))
    await sent(replay)
    clock.advance(601)

    settled = await settle_all(store, clock, Ways({}, clock=clock))

    assert settled == 1


async def test_a_canary_waits_until_its_letters_are_presumed_handled(
    store: LetterStore, replay: Replay, server: Server, clock: FakeClock
) -> None:
    await keep(store, *(drained(n) for n in range(1, 6)))
    campaign = await replay.start("", BY, care=Care(canary=2))
    waited: list[int] = []

    def later(outcomes: int) -> None:
        waited.append(len(server.sent))
        clock.advance(300)

    found = await replay.run(campaign.id, on_wait=later)

    assert set(waited) == {2}
    assert len(server.sent) == 5
    assert found.counts[Outcome.PRESUMED] >= 2


async def test_a_canary_halts_when_its_letters_die_again(
    store: LetterStore, replay: Replay, server: Server, clock: FakeClock
) -> None:
    await keep(store, *(drained(n) for n in range(1, 6)))
    campaign = await replay.start("", BY, care=Care(canary=2))
    died: list[str] = []

    async def die() -> None:
        items = (await store.campaign_items(campaign.id)).items
        failed = [
            ReplaySettled(one.letter_id, one.generation, Outcome.FAILED)
            for one in items
            if one.outcome is Outcome.SENT
        ]
        died.extend(one.letter_id for one in failed)
        await store.settle_replays(failed)

    server.look = lambda copies: _after(die, copies)  # type: ignore[method-assign]
    server.probe = server

    found = await replay.run(campaign.id)

    assert found.state is CampaignState.PAUSED
    assert (len(died), len(server.sent)) == (2, 2)


async def _after(act: object, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
    assert callable(act)
    await act()
    return [CopyState.DEAD for _ in copies]


async def test_messages_are_confirmed_by_their_ids(
    store: LetterStore, replay: Replay, clock: FakeClock
) -> None:
    ids = await keep(store, drained(1), drained(2), drained(3, source="mail"))
    await sent(replay)
    clock.advance(601)
    await replay.settle_others()  # presumed: news still counts

    found = await confirm_messages(store, ["m-1", "m-*", "m-3", "m-1"], BY, sources=["orders"])
    again = await confirm_messages(store, ["m-1"], BY)

    assert (found.confirmed, found.unknown) == (1, ("m-*", "m-3"))
    assert (again.confirmed, again.unknown) == (0, ("m-1",))
    assert await counts(store) == {Outcome.CONFIRMED: 1, Outcome.PRESUMED: 2}
    (act,) = [one for one in await store.audit(target=ids[0]) if one.action == "confirm"]
    assert act.actor == "tester"


async def test_a_server_is_asked_which_interrupted_copies_have_arrived(
    store: LetterStore, replay: Replay, server: Server, clock: FakeClock
) -> None:
    ids = await keep(store, *(drained(n) for n in range(1, 7)))
    campaign = await replay.start("", BY)
    began = clock.now()
    # And then its process is killed. Somebody forged a copy of m-5.
    taken = await store.take_replay(campaign.id, limit=5)
    keys = await KeyRing(store).keys()
    copy = copy_of(taken[0], campaign.id, "orders", now=began, keys=keys)
    assert copy.lineage is not None
    server.finder = server
    server.traces = {
        "m-1": CopyTrace(Arrival.ARRIVED, signature=copy.lineage.signature),
        "m-2": CopyTrace(Arrival.MISSING),
        "m-3": CopyTrace(Arrival.LOST, "the topic is too long"),
        "m-4": CopyTrace(Arrival.UNKNOWABLE, "the queue shows nothing"),
        "m-5": CopyTrace(Arrival.ARRIVED, signature=copy.lineage.signature),
    }
    clock.advance(60)

    found = await replay.run(campaign.id)

    assert [(one.generation, one.sent_at) for one in server.asked] == [(1, began)] * 5
    assert [one.id for one in server.sent] == ["m-2", "m-4", "m-5", "m-6"]
    assert found.counts == {Outcome.SENT: 5, Outcome.UNCONFIRMED: 1}
    assert await state(store, ids[2]) is State.PENDING
    acts = {n: await store.audit(target=id_) for n, id_ in enumerate(ids, 1)}
    assert "the topic is too long" in acts[3][-1].reason
    assert "twice" in acts[4][-1].detail
    assert [one for n in (1, 2, 5, 6) for one in acts[n] if one.actor != BY.actor] == []
    [said] = [one for one in await store.audit(target=campaign.id) if one.actor == "deadletter"]
    assert "1 letter is sent again" in said.detail
    assert said.reason == "the queue shows nothing"


async def test_the_server_is_not_asked_without_an_interrupted_send(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, drained(1))
    server.finder = server

    await sent(replay)

    assert server.asked == []


def test_servers_are_known_without_their_secrets(clock: FakeClock) -> None:
    ways = Ways({"shop": SHOP}, clock=clock, home="redis://ours:6379/0")

    assert server_label(SHOP) == "amqp://shop:5672/live"
    assert ways.way_of("shop") == ways.way_of(server_label(SHOP)) == "shop"
    assert ways.way_of("redis://ours:6379/0") == ""
    assert ways.way_of("") is None
    assert ways.way_of("amqp://other:5672") is None
    assert ways.named("amqp://me:too@shop:5672/live") == "shop"
    assert ways.named("amqp://me:too@other:5672/") == "amqp://other:5672"
    with pytest.raises(ConfigError, match="there is no source named"):
        ways.named("store")
    with pytest.raises(ConfigError):
        ways.url("amqp://never.seen")


async def test_letters_whose_id_is_in_use_go_only_if_they_are_included(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, drained(1), drained(2))
    server.in_use = {"m-1"}

    plan = await replay.plan("")
    first = await sent(replay)
    left_out, refused_ids = [one.id for one in server.sent], server.gives_new_ids
    care = Care(include=(Verdict.ID_IN_USE,))
    asked = await replay.start("is:pending", BY, care=care)
    await replay.run(asked.id)

    assert plan.verdicts == {Verdict.ID_IN_USE: 1, Verdict.READY: 1}
    assert plan.left_out == (Verdict.ID_IN_USE,)
    assert (first.counts, left_out, refused_ids) == ({Outcome.SENT: 1}, ["m-2"], False)
    assert [one.id for one in server.sent] == ["m-2", "m-1"]
    assert server.gives_new_ids


async def test_a_plan_is_made_while_the_server_does_not_answer(
    store: LetterStore, replay: Replay, server: Server
) -> None:
    await keep(store, drained(1))
    server.is_down = True

    assert (await replay.plan("")).verdicts == {Verdict.READY: 1}
