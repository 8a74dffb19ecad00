"""dlq send: put a message into a mailbox."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from deadletter.core.errors import ConfigError
from deadletter.core.message import Message, as_seconds, checked, sendable_headers

from .desk import AtDesk
from .options import given_body, header_of

Seconds = Annotated[float, Parameter(validator=Number(gte=0))]


async def send(
    mailbox: str,
    body: str | None = None,
    /,
    *,
    file: Annotated[
        Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)
    ] = None,
    header: Annotated[tuple[str, ...], Parameter(name=["--header", "-H"])] = (),
    content_type: str | None = None,
    key: str | None = None,
    message_id: Annotated[str | None, Parameter(name="--id")] = None,
    idempotency_key: str | None = None,
    reply_to: str | None = None,
    delay: Seconds = 0.0,
    expires_in: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    desk: AtDesk,
) -> None:
    """
    Send a message and print its id, once the mailbox has it for good.

    Args:
        mailbox: Where to. It is made if it is not there yet.
        body: The body as text. Without it, --file says where it is.
        file: A file with the body; - is standard input.
        header: name=value; may be given several times.
        content_type: What the body is; application/json if it looks like it.
        key: Its ordering key.
        message_id: Its id; a new one without.
        idempotency_key: What must be done once.
        reply_to: The mailbox its reply goes to.
        delay: Seconds before it can be received.
        expires_in: Seconds after which it is of no use any more.
    """
    if message_id == "":
        raise ConfigError("--id is empty: give the message an id, or leave it out")
    data = given_body(body, file)
    now = desk.clock.now()
    message = Message(
        id=message_id or desk.dice.new_id(),
        body=data,
        sent_at=now,
        headers=sendable_headers(header_of(text) for text in header),
        content_type=content_type or _natural(data),
        key=key,
        expires_at=_expiry(now, expires_in),
        reply_to=reply_to,
        idempotency_key=idempotency_key,
    )
    async with desk.engine(make=True) as engine:
        sink = engine.broker.sink(mailbox)
        await sink.send([checked(message)], delay=as_seconds("delay", delay))
    if desk.as_json:
        desk.document({"id": message.id, "mailbox": mailbox})
    else:
        desk.tell(message.id)


def _expiry(now: datetime, within: float | None) -> datetime | None:
    if within is None:
        return None
    return now + timedelta(seconds=as_seconds("expires_in", within))


def _natural(body: bytes) -> str | None:
    return "application/json" if body.lstrip()[:1] in (b"{", b"[") else None
