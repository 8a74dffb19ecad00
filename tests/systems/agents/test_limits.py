"""The limitations of the document, and the options beyond them."""

import re
from typing import Any

import pytest

from agents import (
    Backend,
    BackendMailbox,
    DeadLetter,
    DLQConsumer,
    DLQPolicy,
    MainLoopConfig,
    MainLoopRequest,
    RuledPolicy,
)
from agents.errors import InvalidParameterError, RateLimitError
from agents.letter_handlers import ReplayWhen
from agents.serialization import decoder
from deadletter import BrakePolicy, NoBackoff, Rule, State, Trouble
from deadletter.core.events import BrakeOpened, LetterHandled
from deadletter.core.letter import DeadLetter as Kept
from deadletter.office.letters import Letters
from deadletter.testing.fakes import FakeClock
from systems.agents.rig import Rig, failing, running, until, upper
from systems.agents.test_replay import known

NO, LATE = LookupError("no such thing"), TimeoutError("too slow")


def test_nothing_is_replayed_by_itself(timed: Rig, clock: FakeClock) -> None:
    timed.bury(hello=LATE)
    with running(timed.loop(upper)):
        clock.advance(30 * 86_400)
        timed.ask("other")
        assert timed.answer().output == "OTHER"

    assert timed.requests.approximate_count() == 0
    assert timed.dead.approximate_count() == 1
    assert timed.kept()[0].head.state is State.PENDING


def test_a_handler_may_replay_letters_by_rule(timed: Rig, clock: FakeClock) -> None:
    timed.bury(late=LATE, wrong=NO)
    others: list[str] = []
    handler = ReplayWhen(
        source=timed.requests,
        reply_resolver=known(timed),
        predicate=lambda letter: letter.last_error_type.endswith("TimeoutError"),
        after=60,
        otherwise=lambda letter: others.append(letter.body.request),
    )
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=timed.dead, handler=handler)

    consumer.run(max_iterations=1, wait_time_seconds=0)
    assert timed.requests.approximate_count() == 0  # not yet
    clock.advance(60)
    consumer.run(max_iterations=1, wait_time_seconds=0)

    assert others == ["wrong"]
    with running(timed.loop(upper)):
        assert timed.answer().output == "LATE"
    assert [event.action for event in timed.seen(LetterHandled)] == ["processed", "replayed"]


def test_source_and_dead_letter_mailbox_must_share_a_backend(timed: Rig) -> None:
    with Backend("memory://") as other:
        dead: BackendMailbox[Any, None] = BackendMailbox(name="requests-dlq", client=other)
        with pytest.raises(InvalidParameterError, match="same backend"):
            timed.loop(upper, dlq=DLQPolicy(mailbox=dead))


def test_letters_can_be_kept_by_another_engine_than_messages(rig: Rig) -> None:
    rig.bury(hello=NO)

    (letter,) = rig.kept()

    assert decoder(MainLoopRequest[str])(letter.message.body).request == "hello"
    engine = rig.backend.call(rig.backend.engine())
    where = {engine.features.engine, type(engine.letters).__module__.split(".")[2]}
    assert where in ({"memory"}, {"redis", "sqlite"})


def test_letters_are_received_in_the_order_of_their_deaths(rig: Rig) -> None:
    names = [f"r{number}" for number in range(5)]
    rig.bury(**dict.fromkeys(names, NO))

    found = [message.body.body.request for message in rig.dead.receive(max_messages=10)]

    assert found == names


def test_the_office_finds_letters_by_search(rig: Rig) -> None:
    rig.bury(a=NO, b=LATE, c=NO)

    async def found(query: str) -> list[Kept]:
        store = await rig.backend.letters()
        ids = await Letters(store, rig.backend.clock).freeze(query)
        return list(await store.get(ids))

    (late,) = rig.backend.call(found("error:TimeoutError"))
    assert b'"b"' in late.message.body
    assert len(rig.backend.call(found("error:LookupError is:pending"))) == 2
    groups = {letter.head.fingerprint for letter in rig.kept()}
    assert len(groups) == 2


class Refusal(PermissionError):
    """A subclass of the type that a rule names."""


class Slow(RateLimitError):
    """A subclass of a type that a rule matches exactly."""


RULES = (
    Rule(
        id="not-for-us",
        trouble=Trouble.PERMANENT,
        code="REFUSED",
        types=(PermissionError,),  # and all below
    ),
    Rule(
        id="bad-record",
        trouble=Trouble.PERMANENT,
        code="BAD_RECORD",
        pattern=re.compile(r"record \d+ is broken"),
    ),
    Rule(id="slower", trouble=Trouble.TRANSIENT, exact=(RateLimitError,)),
)


class TestRules:
    """Rules by exact type, subclass or pattern, with a mailbox for each kind."""

    def policy(self, rig: Rig) -> RuledPolicy[Any, Any]:
        return RuledPolicy(
            mailbox=rig.dead,
            max_delivery_count=3,
            rules=RULES,
            routes={
                "REFUSED": rig.box("refused-dlq", DeadLetter[Any]),
                "BAD_RECORD": rig.box("broken-dlq", DeadLetter[Any]),
            },
        )

    @pytest.mark.parametrize(
        ("error", "mailbox", "count"),
        [
            (Refusal("no"), "refused-dlq", 1),
            (PermissionError("no"), "refused-dlq", 1),
            (ValueError("record 17 is broken"), "broken-dlq", 1),
            (ValueError("another thing"), "requests-dlq", 3),
            (Slow("only a kind of it"), "requests-dlq", 3),
        ],
    )
    def test_errors_are_routed_by_rule(
        self, rig: Rig, error: Exception, mailbox: str, count: int
    ) -> None:
        with running(rig.loop(failing(error), dlq=self.policy(rig))):
            rig.ask("hello")
            box: Any = rig.box(mailbox, DeadLetter[Any])
            (message,) = box.receive(wait_time_seconds=15)

        assert message.body.delivery_count == count
        others = {"refused-dlq", "broken-dlq", "requests-dlq"} - {mailbox}
        assert [rig.box(name).approximate_count() for name in others] == [0, 0]

    def test_errors_that_a_rule_calls_transient_are_never_dead_lettered(self, rig: Rig) -> None:
        def adapter(prompt: str, session: Any) -> str:
            if session.delivery_count < 7:
                raise RateLimitError("slower")
            return "done"

        with running(rig.loop(adapter, dlq=self.policy(rig))):
            rig.ask("hello")

            assert rig.answer().output == "done"


def test_by_default_every_failure_counts_also_in_an_outage(rig: Rig) -> None:
    """As documented: after five deliveries, whatever fails beside it."""
    config = MainLoopConfig(slots=4, backoff=NoBackoff())
    error = ConnectionError("the provider is down")
    with running(rig.loop(failing(error), config=config)):
        for number in range(20):
            rig.ask(f"r{number}")
        until(lambda: rig.dead.approximate_count() == 20, within=60)

    assert {letter.head.attempts for letter in rig.kept()} == {5}
    assert rig.seen(BrakeOpened) == []


def test_with_a_brake_a_single_failing_request_is_dead_lettered_as_usual(rig: Rig) -> None:
    config = MainLoopConfig(backoff=NoBackoff(), brake=BrakePolicy())
    with running(rig.loop(failing(ConnectionError("not for this one")), config=config)):
        rig.ask("hello")
        assert rig.letter().delivery_count == 5

    assert rig.seen(BrakeOpened) == []


def test_with_a_brake_an_outage_makes_no_dead_letters(rig: Rig) -> None:
    """Transient failures of many requests stop receiving, and count as no delivery."""
    is_down = True

    def adapter(prompt: str, session: Any) -> str:
        if is_down:
            raise ConnectionError("the provider is down")
        return prompt.upper()

    config = MainLoopConfig(slots=4, backoff=NoBackoff(), brake=BrakePolicy())
    with running(rig.loop(adapter, config=config, dlq=rig.policy(max_delivery_count=9))):
        for number in range(4):
            rig.ask(f"r{number}")
        until(lambda: rig.seen(BrakeOpened))
        is_down = False

        outputs = sorted(str(rig.answer(within=30).output) for _ in range(4))
    assert outputs == ["R0", "R1", "R2", "R3"]
    assert rig.kept() == []
