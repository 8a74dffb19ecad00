"""Replies on their way out."""

from deadletter.core.errors import DeadLetterError
from deadletter.core.events import Observer, ReplyFailed
from deadletter.core.message import Delivery, Message
from deadletter.ports import Broker


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
