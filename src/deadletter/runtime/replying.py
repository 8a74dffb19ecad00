"""Replies on their way out."""

from datetime import datetime

from deadletter.core.decision import Decision
from deadletter.core.errors import DeadLetterError
from deadletter.core.events import Observer, ReplyFailed
from deadletter.core.failure import Failure
from deadletter.core.message import Delivery, Message
from deadletter.core.policy import DLQPolicy
from deadletter.core.reply import bad_news, error_reply
from deadletter.ports import Broker

from .typed import encode


def worded(
    policy: DLQPolicy,
    delivery: Delivery,
    decision: Decision,
    failure: Failure,
    *,
    id: str,
    now: datetime,
) -> Message:
    """The bad news in the policy's words; in ours, if its own cannot be had."""
    try:
        news, _ = encode(policy.bad_news(delivery, decision, failure))
    except Exception:  # noqa: BLE001 -- it may be anybody's code
        news, _ = encode(bad_news(delivery, decision, failure))
    return error_reply(delivery, failure, news, id=id, now=now)


async def send_reply(
    reply: Message, delivery: Delivery, *, broker: Broker, observe: Observer
) -> None:
    """Send it to whoever asked; one that cannot be sent is told of, and that is all."""
    message = delivery.message
    if message.reply_to is None:
        return
    try:
        await broker.sink(message.reply_to).send([reply])
    except DeadLetterError as error:  # the name came with the message
        observe(
            ReplyFailed(
                mailbox=delivery.mailbox,
                message_id=message.id,
                reply_to=message.reply_to,
                text=str(error),
            )
        )
