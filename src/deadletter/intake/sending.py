"""Messages sent back one after the other, each with its own outcome."""

from collections.abc import Awaitable, Callable, Sequence

from deadletter.core.errors import DeadLetterError, PartlySent, Unavailable
from deadletter.core.message import Message


async def send_in_turn(
    messages: Sequence[Message], send: Callable[[Message], Awaitable[None]]
) -> None:
    """
    Send messages in their order; one that is refused does not stop the others.

    Raises `PartlySent` unless all were sent. `Unavailable` ends the sending: of the
    message it was raised for, nobody knows.
    """
    sent: list[int] = []
    refused: dict[int, DeadLetterError] = {}
    for place, message in enumerate(messages):
        try:
            await send(message)
        except Unavailable as error:
            raise PartlySent(sent=sent, refused=refused, cause=error) from error
        except DeadLetterError as error:
            refused[place] = error
        else:
            sent.append(place)
    if refused:
        raise PartlySent(sent=sent, refused=refused)
