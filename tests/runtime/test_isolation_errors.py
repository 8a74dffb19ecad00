"""Errors of isolated handlers are raised here as what they were there."""

import pytest

import isolated_handlers
from deadletter.core.errors import Ignore, Malformed, Signal
from deadletter.core.failure import Bury, Continue, Reason, Retry, Trouble
from deadletter.core.failure.capture import capture
from deadletter.core.failure.rules import DEFAULT
from deadletter.runtime.isolation_wire import RemoteError
from isolation_rig import delivery, running


async def raised_by(handler: str, *bodies: bytes) -> list[Exception]:
    """What the handler raises for each of these."""
    errors = []
    async with running(handler) as runner:
        for body in bodies:
            with pytest.raises(Exception) as raised:  # noqa: PT011
                await runner(delivery(body))
            errors.append(raised.value)
    return errors


@pytest.mark.parametrize("handler", ["raises", "raises_later"])
async def test_errors_are_raised_here_as_what_they_were_there(handler: str) -> None:
    expected = {
        b"value": ValueError("not a number"),
        b"key": KeyError("missing"),
        b"refused": ConnectionRefusedError(111, "Connection refused"),
        b"funds": isolated_handlers.NoFunds("42", code="INSUFFICIENT_FUNDS"),
    }

    errors = await raised_by(handler, *expected)

    for raised, error in zip(errors, expected.values(), strict=True):
        there, here = capture(raised, DEFAULT), capture(error, DEFAULT)
        assert type(raised) is type(error)
        assert str(raised) == str(error)
        assert vars(raised).get("code") == vars(error).get("code")
        assert (there.trouble, there.code) == (here.trouble, here.code)
        assert there.error_type == here.error_type
        assert "isolated_handlers.py" in there.stack
        assert there.frame.startswith("isolated_handlers:raises#")


async def test_other_errors_have_a_stand_in_of_their_name() -> None:
    expected = {
        b"shy": ("isolated_handlers.Shy", "answered 503"),
        b"picky": ("isolated_handlers.Picky", "picky"),
        b"local": ("isolated_handlers._local_error.<locals>.Odd", "reset by somebody"),
        b"exit": ("SystemExit", "3"),
        b"interrupt": ("KeyboardInterrupt", ""),
        b"cancelled": ("asyncio.exceptions.CancelledError", ""),
    }

    errors = await raised_by("raises", *expected)

    for raised, (name, text) in zip(errors, expected.values(), strict=True):
        failure = capture(raised, DEFAULT)
        assert isinstance(raised, RemoteError)
        assert failure.error_type == name
        assert str(raised) == text
        assert failure.frame.startswith("isolated_handlers:")


async def test_stand_ins_are_classified_by_what_they_carry_and_descend_from() -> None:
    shy, local = await raised_by("raises", b"shy", b"local")

    failure = capture(shy, DEFAULT)
    assert (failure.trouble, failure.code) == (Trouble.TRANSIENT, "HTTP_503")
    assert isinstance(local, ConnectionResetError)
    assert capture(local, DEFAULT).trouble is Trouble.TRANSIENT


async def test_causes_come_along() -> None:
    [raised] = await raised_by("raises", b"caused")

    assert isinstance(raised.__cause__, ConnectionRefusedError)
    assert capture(raised, DEFAULT).trouble is Trouble.TRANSIENT


async def test_half_a_character_does_not_break_the_line() -> None:
    [raised] = await raised_by("raises", b"surrogate")

    assert str(raised) == "half ? a character"


async def test_a_handlers_say_in_its_fate_is_heard() -> None:
    bodies = (b"later", b"give up", b"logical", b"ignore")

    later, give_up, logical, ignore = await raised_by("raises", *bodies)

    assert isinstance(later, Signal)
    assert later.decision == Retry(30.0, charged=False)
    assert isinstance(give_up, Signal)
    assert give_up.decision == Bury(Reason.REJECTED, "hopeless")
    assert isinstance(logical, Signal)
    assert logical.decision == Continue("no such customer")
    assert isinstance(ignore, Ignore)


async def test_a_body_that_does_not_fit_is_malformed() -> None:
    [raised] = await raised_by("order", b"not json")

    assert type(raised) is Malformed
