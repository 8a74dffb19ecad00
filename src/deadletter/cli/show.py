"""dlq show: one letter's whole story, for a tired person."""

import sys
from base64 import b64encode
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from deadletter.core.dialects import unmarked
from deadletter.core.errors import ConfigError
from deadletter.core.message import Message
from deadletter.office.view import MessageView

from .desk import AtDesk
from .letters import head_fields
from .office import Looked
from .options import Flag
from .story import next_steps, told
from .targets import letter_id


async def show(
    letter: str,
    /,
    *,
    reveal_: Annotated[Flag, Parameter(name="--reveal")] = False,
    raw: Flag = False,
    original: Flag = False,
    capture: Flag = False,
    stacks: Flag = False,
    desk: AtDesk,
) -> None:
    """
    Tell one letter's whole story: message, attempts, errors, and who did what.

    Args:
        letter: Its id, or the first 6 or more characters of it.
        reveal_: Show what is masked: secrets in headers and body. Goes into the audit.
        raw: Write the body as it is, and nothing else, into a file or a pipe. Goes
            into the audit.
        original: With --raw: the body that died, if it was edited since.
        capture: Show the header `dlq-found` of a drained letter: everything that is
            needed to send it back.
        stacks: Show the stack of every attempt, not only of the last.
    """
    if raw and sys.stdout.isatty():
        raise ConfigError(
            "--raw writes the bytes as they are, which a terminal may obey: "
            "redirect it, as in `dlq show ID --raw > body`"
        )
    by, letter = desk.by(), letter_id(letter)
    async with desk.office() as office:
        if raw:
            _, message = await office.message(letter, by, original=original)
            sys.stdout.buffer.write(message.body)
            sys.stdout.buffer.flush()
            return
        found = await office.look(letter, by, reveal=reveal_, capture=capture)
    if desk.as_json:
        desk.document(_fields(found, capture=capture))
        return
    for part in told(found, desk.clock.now(), stacks=stacks):
        desk.show(part)
    desk.show(Text())
    ways = desk.ways if desk.server is None else None
    desk.tell(next_steps(found.view, desk.dlq, ways), "dim")


def _fields(found: Looked, *, capture: bool) -> dict[str, Any]:
    view = found.view
    fields = head_fields(view.head)
    fields["message"] = _message(view.message, found.message, capture=capture)
    if view.original is not None:
        fields["original"] = _message(view.original, found.original, capture=capture)
    if view.origin is not None:
        fields["origin"] = msgspec.to_builtins(view.origin)
    fields["position"] = view.position
    fields["frame"] = view.frame
    fields["first_received_at"] = view.first_received_at
    fields["story"] = msgspec.to_builtins(found.moments)
    return fields


def _message(
    view: MessageView, revealed: Message | None, *, capture: bool
) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(view)
    if revealed is not None:
        revealed = revealed if capture else unmarked(revealed)
        fields["body"] = b64encode(revealed.body).decode()
        fields["raw_headers"] = [
            [name, b64encode(value).decode()] for name, value in revealed.headers
        ]
    return fields
