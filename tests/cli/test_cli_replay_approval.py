"""dlq replay approve, and why letters of a replay failed again."""

from typing import Any

from msgspec import structs

from cli.conftest import Command
from cli.test_cli_replay import received
from deadletter.core.attempts import Attempt, append
from deadletter.core.letter import By
from deadletter.office.office import Office
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import Chosen
from deadletter.system import SystemClock, SystemDice
from office.making import NOW, make_letter, make_letters


def test_a_planned_replay_is_approved_by_somebody_else(dlq: Command) -> None:
    letters = make_letters(3)
    dlq.keep(*letters)

    async def freeze(engine: Any) -> str:
        office = Office(engine, SystemClock(), SystemDice())
        chosen = Chosen(tuple(one.id for one in letters), "is:pending")
        frozen = await office.replays.freeze(ReplayRequest(chosen=chosen, by=By("anna")))
        await office.replays.judge(frozen.id)
        return frozen.id

    name = dlq.do(freeze)

    own = dlq("replay", "approve", name, "--actor", "anna")
    wrong = dlq("replay", "approve", name, "--actor", "berta", "--expect", "4")
    right = dlq("replay", "approve", name, "--actor", "berta", "--expect", "3", "--json")
    twice = dlq("replay", "approve", name, "--actor", "berta")

    assert own.code != 0
    assert "somebody else has to approve it" in own.err
    assert "3 letters, not 4" in wrong.err
    assert right.document["approved_by"] == "berta"
    assert "approved already, by berta" in twice.err


def test_the_status_of_a_replay_tells_why_letters_failed_again(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)
    name = dlq("replay", letter.id, "--json").document["id"]
    (delivery,) = received(dlq)
    attempt = Attempt(number=1, at=NOW, error_type="shop.KeyError", text="'iban'", generation=1)
    head = structs.replace(letter.head, error_type="shop.KeyError", error_text="'iban'")
    dlq.keep(
        structs.replace(letter, head=head, message=delivery.message, history=append("", attempt))
    )

    ran = dlq("replay", "status", name)

    assert "another error: KeyError 'iban' (group " in ran.out
    assert "the same error" not in ran.out
