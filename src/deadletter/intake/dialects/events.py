"""Dialects of clouds and event systems: Pub/Sub, Service Bus, Knative, Watermill."""

from base64 import b64decode
from binascii import Error
from typing import Any, Final

from deadletter.core.failure import Reason, Trouble
from deadletter.core.origin import (
    Found,
    Told,
    count,
    document,
    mapping,
    moment,
    named,
    number,
    words,
)

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


# What Knative writes on a CloudEvent that it could not deliver.

_CODE: Final = "knativeerrorcode"
_DATA: Final = "knativeerrordata"
_TO: Final = "knativeerrordest"
_NAMES: Final = (_CODE, _DATA, _TO)
# Before an attribute's name in a header: on Kafka, HTTP and NATS, AMQP, and nothing.
_PREFIXES: Final = ("ce_", "ce-", "cloudEvents:", "cloudEvents_", "")


def knative(found: Found) -> Told | None:
    """
    Knative's `knativeerror*`: what was answered, and by whom.

    Of an event in structured mode they stand in its body, which stays as it is.
    """
    said = _attributes(found)
    if not said:
        return None
    code = number(said.get(_CODE, ""))
    return Told(
        dialect="knative",
        error_type=f"HTTP {code}" if code else "",
        error_text=_answer(said.get(_DATA, "")),
        status=code or 0,
        consumer=said.get(_TO, ""),
        fields={"destination": said.get(_TO, ""), "status": said.get(_CODE, "")},
        drops=frozenset(prefix + name for prefix in _PREFIXES for name in _NAMES),
    )


def _attributes(found: Found) -> dict[str, str]:
    for prefix in _PREFIXES:
        said = {name: found.text(prefix + name) for name in _NAMES}
        if any(said.values()):
            return said
    if b"knativeerror" not in found.body:
        return {}
    event: dict[str, Any] = mapping(document(found.body))
    return {name: words(event[name]) for name in _NAMES if name in event}


def _answer(data: str) -> str:
    """Return the beginning of the answer, usually base64."""
    try:
        return b64decode(data, validate=True).decode()
    except (Error, ValueError):
        return data


# Watermill's poison queue middleware.

_WATERMILL_NAMES: Final = frozenset(
    {"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"}
)


def poisoned(found: Found) -> Told | None:
    """Read four metadata keys: reason, topic, handler, subscriber."""
    if not any(name in _WATERMILL_NAMES for name, _ in found.headers):
        return None
    return Told(
        dialect="watermill",
        source=found.text("topic_poisoned"),
        message_id=found.text("_watermill_message_uuid"),
        error_text=found.text("reason_poisoned"),
        consumer=found.text("handler_poisoned"),
        fields={
            name.removesuffix("_poisoned"): found.text(name) for name in sorted(_WATERMILL_NAMES)
        },
        retold=_WATERMILL_NAMES,
        drops=_WATERMILL_NAMES,
    )
