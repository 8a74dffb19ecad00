"""The requests of a loop: in a mailbox on a backend, or in one that a user has written."""

from collections.abc import Sequence
from typing import Any, Protocol

from deadletter import Delivery

from .backend import Backend
from .errors import InvalidParameterError
from .mailbox import BackendMailbox
from .mailbox_broker import MailboxBroker
from .message import Mailbox, Message, ReceivedMessage


class LoopRequests(Protocol):
    """The requests of one loop, and the dead-letter mailboxes they go to."""

    keeps_history: bool
    backend: Backend | None  # None: the mailbox is not on a backend

    def body(self, delivery: Delivery) -> Any:
        """Return the request. Raises SerializationError if it cannot be decoded."""

    def message(self, delivery: Delivery, count: int) -> ReceivedMessage[Any, Any]:
        """Return the message as a policy gets to see it."""

    def announce(self, delivery: Delivery, news: object) -> None:
        """Take note of the error reply that is about to be sent."""

    def answer(self, delivery: Delivery, result: object) -> object:
        """Reply with a result; return it if the runtime is to send the reply."""

    def attach(self, broker: MailboxBroker | None) -> None:
        """Use the broker that a loop is run with."""


def loop_requests(requests: Mailbox[Any, Any], dead: Sequence[Mailbox[Any, Any]]) -> LoopRequests:
    """
    Return the requests in a mailbox.

    Raises InvalidParameterError if a dead-letter mailbox is on another kind of backend.
    """
    if isinstance(requests, BackendMailbox):
        for box in dead:
            requests.beside(box)
        return BackendRequests(requests)
    for box in dead:
        if isinstance(box, BackendMailbox):
            raise InvalidParameterError(
                f"dead-letter mailbox {box.name} is on a backend and {requests.name} is not: "
                "use the same kind of mailbox for both"
            )
    return MailboxRequests(requests)


class BackendRequests:
    """Requests in a mailbox on a backend."""

    keeps_history = True

    def __init__(self, mailbox: BackendMailbox[Any, Any]) -> None:
        self._mailbox = mailbox
        self.backend: Backend | None = mailbox.backend

    def body(self, delivery: Delivery) -> Any:
        return self._mailbox.decode(delivery.message.body)

    def message(self, delivery: Delivery, count: int) -> ReceivedMessage[Any, Any]:
        return self._mailbox.message(delivery, count=count)

    def announce(self, delivery: Delivery, news: object) -> None:
        """Do nothing: the runtime sends the reply itself."""

    def answer(self, delivery: Delivery, result: object) -> object:
        return result

    def attach(self, broker: MailboxBroker | None) -> None:
        """Do nothing: the mailbox has its backend."""


class MailboxRequests:
    """Requests in a mailbox that is not on a backend."""

    keeps_history = False
    backend: Backend | None = None

    def __init__(self, mailbox: Mailbox[Any, Any]) -> None:
        self._name = mailbox.name
        self._broker: MailboxBroker | None = None

    def body(self, delivery: Delivery) -> Any:
        return self._held(delivery).body

    def message(self, delivery: Delivery, count: int) -> ReceivedMessage[Any, Any]:
        held = self._held(delivery)
        return ReceivedMessage(
            id=held.id,
            body=held.body,
            delivery_count=count,
            enqueued_at=held.enqueued_at,
            reply_to=held.reply_to,
        )

    def announce(self, delivery: Delivery, news: object) -> None:
        if self._broker is not None:
            self._broker.source(self._name).announce(delivery.message.id, news)

    def answer(self, delivery: Delivery, result: object) -> object:
        held = self._held(delivery)
        if held.reply_to is not None:
            held.reply(result)
        return None

    def attach(self, broker: MailboxBroker | None) -> None:
        self._broker = broker

    def _held(self, delivery: Delivery) -> Message[Any, Any]:
        held: Message[Any, Any] = delivery.receipt
        return held
