"""Checks of received deliveries: which of their fields may be believed."""

from collections.abc import Collection, Sequence

from msgspec import structs

from deadletter.core.events import HeadersIgnored, Observer
from deadletter.core.message import Delivery, has_invalid_limit
from deadletter.core.signing import Keys
from deadletter.intake.dialects import is_lineage_believed
from deadletter.ports import Features


class Trust:
    """
    Remove fields from deliveries that somebody else could have written.

    Engines that own their fields need no check of lineages. In a dead queue, copies
    that its broker moved there from the mailboxes `dead_queue_of` are trusted.
    """

    def __init__(
        self, features: Features, keys: Keys, observe: Observer, dead_queue_of: Collection[str] = ()
    ) -> None:
        self._needed = not features.owns_fields
        self._keys = keys
        self._dead_queue_of = dead_queue_of
        self._observe = observe

    def checked(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the deliveries without unsigned lineages; report ignored headers."""
        for one in deliveries:
            if one.message.headers and has_invalid_limit(one.message):
                self._report(one, "max-attempts")
        if not self._needed:
            return deliveries
        return [
            one if one.message.lineage is None and not one.unsigned else self._checked(one)
            for one in deliveries
        ]

    def _checked(self, delivery: Delivery) -> Delivery:
        message = delivery.message
        if delivery.unsigned:
            self._report(delivery, "attempts")
        if message.lineage is None or is_lineage_believed(
            message, delivery.mailbox, self._keys, dead_queue_of=self._dead_queue_of
        ):
            return delivery
        key = self._keys.unknown(message.lineage.signature)
        self._report(delivery, "lineage", key)
        return structs.replace(delivery, message=structs.replace(message, lineage=None))

    def _report(self, delivery: Delivery, what: str, key: str = "") -> None:
        id_, mailbox = delivery.message.id, delivery.mailbox
        self._observe(HeadersIgnored(mailbox=mailbox, message_id=id_, what=what, key=key))
