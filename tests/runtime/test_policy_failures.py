"""What a policy, a rule or a key function raises costs no message its attempts."""

from typing import Any

import pytest

from deadletter.core.backoff import Fixed, NoBackoff
from deadletter.core.events import PolicyFailed, Retried
from deadletter.core.failure import Trouble
from deadletter.core.failure.classify import ErrorClassifier, Rule
from deadletter.core.message import Message
from deadletter.core.policy import DLQPolicy
from deadletter.testing.fakes import eventually
from rig import Rig


class Broken(DLQPolicy, frozen=True, kw_only=True):
    def should_dead_letter(self, delivery: Any, error: Any) -> bool:
        raise LookupError("no such customer")


class Undecided(DLQPolicy, frozen=True, kw_only=True):
    def decide(self, situation: Any, draw: float) -> Any:
        return None


class Backwards(Fixed, frozen=True, tag="backwards"):
    def delay(self, attempt: int, draw: float) -> float:
        return float("nan")


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Broken(max_attempts=1), "Broken raised LookupError: no such customer"),
        (
            Undecided(max_attempts=1),
            (
                "Undecided raised TypeError: expected a Decision"
                " (Ack, Retry, Bury, Fail or Continue), got None"
            ),
        ),
        (
            DLQPolicy(max_attempts=2, backoff=Backwards(1.0)),
            "DLQPolicy raised ValueError: the delay of a Retry must be >= 0 and finite, got nan",
        ),
    ],
)
async def test_a_policy_that_fails_buries_nothing(policy: DLQPolicy, says: str) -> None:
    rig = Rig()

    @rig.app.handler("orders", policy=policy, brake=None)
    async def handle(order: dict[str, Any]) -> None:
        raise ValueError(order)

    async with rig.working():
        await rig.app.send("orders", {}, id="m-1")
        await eventually(lambda: bool(rig.seen(Retried)))

        assert rig.seen(PolicyFailed)[0] == PolicyFailed(
            mailbox="orders", message_id="m-1", text=says
        )
        assert [event.charged for event in rig.seen(Retried)] == [False]
        assert await rig.letters() == []
        assert (await rig.queue("orders")).delayed == 1


async def test_a_rule_that_fails_makes_an_error_unknown_and_is_reported() -> None:
    def predicate(error: BaseException) -> bool:
        raise AttributeError("no code")

    rule = Rule(id="ours", trouble=Trouble.PERMANENT, predicate=predicate)
    policy = DLQPolicy(max_attempts=2, backoff=NoBackoff(), classifier=ErrorClassifier((rule,)))
    rig = Rig()

    @rig.app.handler("orders", policy=policy, brake=None)
    async def handle(order: dict[str, Any]) -> None:
        raise ValueError(order)

    async with rig.working():
        await rig.app.send("orders", {}, id="m-1")
        await rig.drained("orders")
        (letter,) = await rig.letters()

    failed = rig.seen(PolicyFailed)
    assert [one.text for one in failed] == ["rule 'ours' raised AttributeError: no code"] * 2
    assert (letter.head.trouble, letter.head.attempts) == (Trouble.UNKNOWN, 2)


@pytest.mark.parametrize(
    ("answer", "says"),
    [(None, "raised KeyError: 'id'"), (7, "raised TypeError: returned 7, which is no key")],
)
async def test_a_message_whose_key_cannot_be_read_is_not_run(answer: Any, says: str) -> None:
    ran, asked = [], 0

    def key_of(message: Message) -> str | None:
        nonlocal asked
        asked += 1
        if asked > 1:
            return "k-1"
        if answer is None:
            raise KeyError("id")
        return answer  # type: ignore[no-any-return]

    rig = Rig()

    @rig.app.handler("orders", policy=DLQPolicy(backoff=NoBackoff()), brake=None, idempotent=key_of)
    async def handle(order: dict[str, Any]) -> None:
        ran.append(order)

    async with rig.working():
        await rig.app.send("orders", {"order": 1}, id="m-1")
        await rig.drained("orders")

    (failed,) = rig.seen(PolicyFailed)
    assert says in failed.text
    assert (asked, ran) == (2, [{"order": 1}])
