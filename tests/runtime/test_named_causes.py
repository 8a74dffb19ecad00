"""Causes that the application names itself."""

from typing import Any

import pytest

from deadletter import App
from deadletter.core.errors import ConfigError
from deadletter.core.events import PolicyFailed
from deadletter.core.failure import Failure
from deadletter.core.failure.fingerprint import of_head, own_fingerprint
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message
from deadletter.core.policy import DLQPolicy
from deadletter.runtime.registration import CauseOf
from rig import Rig

_AT_ONCE = DLQPolicy(max_attempts=1)


async def buried(rig: Rig, function: CauseOf) -> list[DeadLetter]:
    """Letters of two errors at one mailbox and one at another."""
    rig.app.fingerprint(function)

    @rig.app.handler("orders", policy=_AT_ONCE, brake=None)
    async def handle(order: dict[str, Any]) -> None:
        raise {"a": ValueError, "b": LookupError}[order["kind"]](order["kind"])

    @rig.app.handler("mails", policy=_AT_ONCE, brake=None)
    async def mail(order: dict[str, Any]) -> None:
        raise ValueError(order["kind"])

    async with rig.working():
        await rig.app.send("orders", {"kind": "a"})
        await rig.app.send("orders", {"kind": "b"})
        await rig.app.send("mails", {"kind": "a"})
        await rig.drained("orders")
        await rig.drained("mails")
        return await rig.letters()


async def test_letters_of_one_name_are_one_group() -> None:
    rig = Rig()

    letters = await buried(rig, lambda failure, message: "quota")

    assert len(letters) == 3
    for letter in letters:
        assert letter.head.fingerprint == own_fingerprint(letter.head.source, "quota")
    assert len({letter.head.fingerprint for letter in letters}) == 2
    assert rig.seen(PolicyFailed) == []


async def test_without_a_name_the_office_tells_causes_apart() -> None:
    rig = Rig()

    letters = await buried(rig, lambda failure, message: None)

    assert len({letter.head.fingerprint for letter in letters}) == 3
    assert rig.seen(PolicyFailed) == []


def breaks(failure: Failure, message: Message) -> str | None:
    raise LookupError("no name")


def counts(failure: Failure, message: Message) -> Any:
    return 12


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (breaks, "the function that names causes raised LookupError: no name"),
        (counts, "the function that names causes returned int: it has to return a"),
    ],
)
async def test_a_function_that_fails_is_reported_and_the_office_does_its_work(
    function: CauseOf, says: str
) -> None:
    rig = Rig()

    letters = await buried(rig, function)

    assert len(letters) == 3
    for letter in letters:
        assert letter.head.fingerprint == of_head(letter.head, letter.frame)
    failed = rig.seen(PolicyFailed)
    assert len(failed) == 3
    assert all(one.text.startswith(says) for one in failed)
    assert {one.mailbox for one in failed} == {"orders", "mails"}


def test_only_a_function_can_name_causes() -> None:
    with pytest.raises(ConfigError, match="takes a function"):
        App("memory://").fingerprint("quota")  # type: ignore[arg-type]
