"""What clouds say of a message that they moved by themselves: Pub/Sub, Service Bus."""

from typing import Final

from ..decision import Reason
from ..failure import Trouble
from .found import Found, Told
from .values import count, moment, named

_PUBSUB: Final = "CloudPubSubDeadLetterSource"
_WHY: Final = "DeadLetterReason"
_MORE: Final = "DeadLetterErrorDescription"
_SUBQUEUE: Final = "/$deadletterqueue"
_REASONS: Final = {
    "MaxDeliveryCountExceeded": Reason.ATTEMPTS_EXHAUSTED,
    "TTLExpiredException": Reason.EXPIRED,
}


def pubsub(found: Found) -> Told | None:
    """
    Pub/Sub's `CloudPubSubDeadLetterSource*`: a subscription, and how often it tried.

    The topic is not among them, so that a letter belongs to its subscription.
    """
    names = named(found.headers, _PUBSUB)
    if not names:
        return None
    text = found.text
    path = text(f"{_PUBSUB}Subscription")
    subscription = path.rpartition("/")[2]
    return Told(
        dialect="pubsub",
        source=subscription,
        reason=Reason.ATTEMPTS_EXHAUSTED,
        reason_text="moved by Pub/Sub: it was delivered too often",
        error_text=text(f"{_PUBSUB}DeliveryErrorMessage"),
        attempts=count(text(f"{_PUBSUB}DeliveryCount")),
        sent_at=moment(text(f"{_PUBSUB}TopicPublishTime")),
        consumer=subscription,
        fields={
            "subscription": path,
            "project": text(f"{_PUBSUB}SubscriptionProject"),
            "deliveries": text(f"{_PUBSUB}DeliveryCount"),
            "published_at": text(f"{_PUBSUB}TopicPublishTime"),
        },
        retold=names - {f"{_PUBSUB}DeliveryErrorMessage"},
        drops=names,
    )


def service_bus(found: Found) -> Told | None:
    """
    Azure Service Bus' `DeadLetterReason` and its description.

    Other reasons than those of the service are what a receiver said, rejecting it.
    """
    why = found.text(_WHY)
    said = found.text(_MORE)
    if not why and not said:
        return None
    reason = _REASONS.get(why, Reason.REJECTED)
    place = found.place
    at = place.lower().rfind(_SUBQUEUE)
    return Told(
        dialect="service-bus",
        source=place[:at] if at > 0 else "",
        reason=reason,
        reason_text=f"dead-lettered in Service Bus: {why}" if why else "",
        trouble=Trouble.EXPIRED if reason is Reason.EXPIRED else None,
        error_type=why,
        error_text=said,
        fields={"reason": why, "description": said},
        retold=frozenset({_WHY, _MORE}),
        drops=frozenset({_WHY, _MORE}),
    )
