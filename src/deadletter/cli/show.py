"""dlq show: one letter's whole story, for a tired person."""

import sys
from base64 import b64encode
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from deadletter.core.errors import ConfigError
from deadletter.office.story import Story, reveal, tell

from .body import header_lines, preview
from .desk import AtDesk, Desk
from .letters import head_fields
from .options import Flag
from .story import told


async def show(
    letter: str,
    /,
    *,
    reveal_: Annotated[Flag, Parameter(name="--reveal")] = False,
    raw: Flag = False,
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
        stacks: Show the stack of every attempt, not only of the last.
    """
    if raw and sys.stdout.isatty():
        raise ConfigError(
            "--raw writes the bytes as they are, which a terminal may obey: "
            "redirect it, as in `dlq show ID --raw > body`"
        )
    async with desk.office() as office:
        found = await office.letters.get(letter)
        if raw or reveal_:
            await reveal(office.store, found, desk.by())
        if raw:
            sys.stdout.buffer.write(found.message.body)
            sys.stdout.buffer.flush()
            return
        story = await tell(office.store, found)
    if desk.as_json:
        desk.document(_fields(story, revealed=reveal_))
        return
    _page(desk, story, revealed=reveal_, stacks=stacks)


def _page(desk: Desk, story: Story, *, revealed: bool, stacks: bool) -> None:
    for part in told(story, desk.clock.now(), reveal=revealed, stacks=stacks):
        desk.show(part)


def _fields(story: Story, *, revealed: bool) -> dict[str, Any]:
    letter = story.letter
    fields = head_fields(letter.head)
    message = letter.message
    fields["message"] = {
        "id": message.id,
        "sent_at": message.sent_at,
        "content_type": message.content_type,
        "key": message.key,
        "expires_at": message.expires_at,
        "reply_to": message.reply_to,
        "idempotency_key": message.idempotency_key,
        "traceparent": message.traceparent,
        "headers": header_lines(message.headers, reveal=revealed),
        "preview": "\n".join(preview(message.body, reveal=revealed)),
    }
    if revealed:
        fields["message"]["body"] = b64encode(message.body).decode()
        fields["message"]["raw_headers"] = [
            [name, b64encode(value).decode()] for name, value in message.headers
        ]
    fields["position"] = letter.position
    fields["frame"] = letter.frame
    fields["first_received_at"] = letter.first_received_at
    fields["story"] = msgspec.to_builtins(story.moments)
    return fields
