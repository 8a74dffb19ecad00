"""
Letters made of drained messages; every dialect reads its own headers.

The dialects of clouds and event systems are here: Pub/Sub, Service Bus, Knative, Watermill.
"""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs

from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import NAMES as OWN
from deadletter.core.burial import claims_letter, from_message, is_copy, wish_of
from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.failure.capture import STACK_LIMIT, TEXT_LIMIT
from deadletter.core.failure.fingerprint import fingerprint
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.core.message import Lineage, Message, trace_id
from deadletter.core.origin import (
    LINEAGE,
    NOBODY,
    PACKED,
    REPLAY_OF,
    DeathReport,
    Found,
    Origin,
    Trusted,
    count,
    document,
    is_dead_queue_of,
    is_named_after,
    lineage_of,
    mapping,
    marked,
    moment,
    named,
    number,
    words,
)
from deadletter.core.redact import redact
from deadletter.core.signing import Keys, is_lineage_signed
from deadletter.core.text import cut, plain, plain_line

from .brokers import (
    connect,
    deduplicated,
    given_up,
    moved_from,
    opt_deaths,
    redriven,
    share,
    smallrye,
    spring,
    streams,
    x_death,
)
from .envelopes import dlq_message
from .frameworks import bullmq, celery, dramatiq, masstransit, nservicebus, rq, wolverine

_PUBSUB: Final = "CloudPubSubDeadLetterSource"
_WHY: Final = "DeadLetterReason"
_MORE: Final = "DeadLetterErrorDescription"
_SUBQUEUE: Final = "/$deadletterqueue"
_REASONS: Final = {
    "MaxDeliveryCountExceeded": Reason.ATTEMPTS_EXHAUSTED,
    "TTLExpiredException": Reason.EXPIRED,
}


def pubsub(found: Found) -> DeathReport | None:
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
    return DeathReport(
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


def service_bus(found: Found) -> DeathReport | None:
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
    return DeathReport(
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
_EVENT_PREFIXES: Final = ("ce_", "ce-", "cloudEvents:", "cloudEvents_", "")


def knative(found: Found) -> DeathReport | None:
    """
    Knative's `knativeerror*`: what was answered, and by whom.

    Of an event in structured mode they stand in its body, which stays as it is.
    """
    said = _attributes(found)
    if not said:
        return None
    code = number(said.get(_CODE, ""))
    return DeathReport(
        dialect="knative",
        error_type=f"HTTP {code}" if code else "",
        error_text=_answer(said.get(_DATA, "")),
        status=code or 0,
        consumer=said.get(_TO, ""),
        fields={"destination": said.get(_TO, ""), "status": said.get(_CODE, "")},
        drops=frozenset(prefix + name for prefix in _EVENT_PREFIXES for name in _NAMES),
    )


def _attributes(found: Found) -> dict[str, str]:
    for prefix in _EVENT_PREFIXES:
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


def poisoned(found: Found) -> DeathReport | None:
    """Read four metadata keys: reason, topic, handler, subscriber."""
    if not any(name in _WATERMILL_NAMES for name, _ in found.headers):
        return None
    return DeathReport(
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


Dialect: TypeAlias = Callable[[Found], DeathReport | None]

MALFORMED: Final = "malformed"
"""Name under which a drain says why a found thing is malformed"""

_UNKNOWN: Final = datetime(1970, 1, 1, tzinfo=UTC)  # when nobody knows
_NAME: Final = 240  # characters of a name that somebody else made up
_MARGIN: Final = 1_000  # a secret at the limit must be seen whole to be known as one
_MOST_SAID: Final = 100  # headers of a dialect that are kept for people
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)  # nothing that we read is older
_SEPARATOR: Final = re.compile(r"[._:/-]")
_PREFIXES: Final = 5  # parts of a name that may be a prefix
_AHEAD: Final = timedelta(days=1)  # by which the clock of somebody else may be


def _unreadable(found: Found) -> DeathReport | None:
    """Read something that does not belong in its place: it is kept as it is."""
    said = found.about.get(MALFORMED)
    return None if said is None else _malformed(found, said)


def _malformed(found: Found, said: str) -> DeathReport:
    return DeathReport(
        dialect=MALFORMED,
        source=found.source,
        reason=Reason.UNDECODABLE,
        reason_text=said,
        trouble=Trouble.MALFORMED,
        error_text=said,
    )


DIALECTS: Final[tuple[Dialect, ...]] = (
    _unreadable,
    # What a framework knows counts before what its broker knows.
    *(celery, dramatiq, rq, bullmq),
    *(masstransit, nservicebus, wolverine, poisoned, knative),
    dlq_message,
    *(spring, connect, streams, share, smallrye),
    *(opt_deaths, x_death, redriven, given_up, pubsub, service_bus),
)


def letter_of(
    found: Found, now: datetime, keys: Keys, trusted: Trusted = NOBODY, server: str = ""
) -> DeadLetter:
    """
    The letter of what was found, with all that its dialects tell.

    Never raises, whatever it is: of a thing that says nothing, nothing is known
    but its contents and where it was found. The same thing found again is the
    same letter.
    """
    own = _own(found, now, keys) if claims_letter(found.headers) else None
    if own is not None:
        return own
    told = _timely(_told(found), now)
    home = _home(found, told, keys, trusted)
    message = _message(found, told, now, home.lineage)
    source = home.source
    at = _plausible(found.at, now)
    known = told.dead_at or at or told.first_failed_at or told.sent_at
    dead_at = min(known or now, now)
    failure = structs.replace(_failure(told), frame=_name(told.task))
    reason_text = _text(told.reason_text or _found_in(found, told))
    # Without an error, how it came to lie there is the cause it is grouped by.
    is_bare = not failure.error_type and not failure.text
    cause = structs.replace(failure, text=reason_text) if is_bare else failure
    partition = told.partition if home.is_told else ""
    partition = partition or found.partition
    said, retold = _said(found, told)
    origin = Origin(
        found.kind, found.place, told.dialect, found.raw, said, home.claim, server, retold
    )
    head = LetterHead(
        id=letter_id(source, partition, message.id),
        source=source,
        message_id=message.id,
        partition=partition,
        key=message.key,
        reason=told.reason or _reason(told),
        reason_text=reason_text,
        trouble=failure.trouble,
        code=failure.code,
        error_type=failure.error_type,
        error_text=cause.text,
        fingerprint=fingerprint(source, cause),
        attempts=told.attempts,
        first_failed_at=min(told.first_failed_at or dead_at, dead_at),
        dead_at=dead_at,
        consumer=_name(told.consumer),
        trace_id=trace_id(message.traceparent),
        replays=message.generation,
        size=len(message.body),
    )
    return DeadLetter(
        head=head,
        message=marked(message, origin),
        history=_story(failure, told, known, message.generation),
        frame=failure.frame,
        position=(told.position if home.is_told else "") or found.position,
        retry_wish=wish_of(message),
    )


def has_unsigned(letter: DeadLetter) -> bool:
    """Return whether a letter has headers of ours without a valid signature."""
    names = {name for name, _ in letter.message.headers}
    return not names.isdisjoint(("dlq-id", REPLAY_OF, PACKED))


class _Home(Struct, frozen=True):
    """Return the mailbox of a letter, and how it is known."""

    source: str
    is_told: bool = False  # its dialect names that very mailbox
    lineage: Lineage | None = None  # signed
    claim: str = ""  # another mailbox that its headers name


def _home(found: Found, told: DeathReport, keys: Keys, trusted: Trusted) -> _Home:
    place = _name(found.place)
    # What its place says counts before what it says itself.
    known = _name(found.source) or _name(moved_from(found))
    claim = _name(told.source)
    lineage = lineage_of(found.headers) or deduplicated(found)
    copy = Message(id="", body=found.body, sent_at=_UNKNOWN, lineage=lineage)
    names = [name for name in dict.fromkeys((known, claim, place)) if name]
    sent_to = _sent_to(copy, found, names, keys)
    if not sent_to:
        lineage = None
    if known:
        return _Home(known, claim == known, lineage)
    queue = place.removeprefix(f"{found.kind}:")
    if claim and (claim == sent_to or trusted.allows(claim) or is_named_after(queue, claim)):
        return _Home(claim, True, lineage)
    source = sent_to or place
    return _Home(source, False, lineage, "" if claim in {source, place} else claim)


def _sent_to(copy: Message, found: Found, names: Sequence[str], keys: Keys) -> str:
    """Return the mailbox that a replayed copy was sent to; empty without proof."""
    lineage = copy.lineage
    if lineage is None:
        return ""
    told = lineage.mailbox
    # Celery on Redis has no dead queues: applications call theirs as they like.
    is_near = found.kind == "celery" or is_dead_queue_of(_name(found.place), told)
    if told and told not in names and not is_near:
        return ""
    candidates = [told] if told else names
    signed = (name for name in candidates if is_lineage_signed(copy, name, keys))
    return next(signed, "")


def _timely(told: DeathReport, now: datetime) -> DeathReport:
    """Return the report without impossible times."""
    return structs.replace(
        told,
        dead_at=_plausible(told.dead_at, now),
        first_failed_at=_plausible(told.first_failed_at, now),
        sent_at=_plausible(told.sent_at, now),
    )


def _plausible(time: datetime | None, now: datetime) -> datetime | None:
    return time if time is not None and _EARLIEST <= time <= now + _AHEAD else None


def _story(failure: Failure, told: DeathReport, at: datetime | None, generation: int) -> str:
    """Return one line that identifies a death, the same whenever it is found."""
    if told.is_told_whole:
        return told.history
    if at is None and not failure.text:
        said = f" (delivery {_name(told.delivery)})" if told.delivery else ""
        failure = structs.replace(failure, text=f"nobody wrote down when or why{said}")
    at = at or _UNKNOWN
    return append(
        told.history, attempt_of(failure, number=told.attempts, at=at, generation=generation)
    )


def _told(found: Found) -> DeathReport:
    told = DeathReport(dialect="")
    for dialect in DIALECTS:
        more = _asked(dialect, found)
        if more is not None:
            told = _joined(told, more)
    return told


def _asked(dialect: Dialect, found: Found) -> DeathReport | None:
    try:
        return dialect(found)
    except Exception as error:  # noqa: BLE001 -- whatever a stranger wrote, it is kept
        said = f"it cannot be read: {type(error).__name__}"
        return _malformed(found, said)


def _joined(told: DeathReport, more: DeathReport) -> DeathReport:
    """Merge two reports; where they differ, the first wins."""
    fields = {name: getattr(told, name) or getattr(more, name) for name in told.__struct_fields__}
    fields["drops"] = told.drops | more.drops
    fields["retold"] = told.retold | more.retold
    # Those of a framework first, then what its broker adds.
    fields["fields"] = _filled(told.fields) | more.fields | _filled(told.fields)
    return DeathReport(**fields)


def _message(found: Found, told: DeathReport, now: datetime, lineage: Lineage | None) -> Message:
    # What none of us has signed is the producer's, whatever it is called.
    dropped = told.drops if lineage is None else told.drops | LINEAGE
    headers = tuple(pair for pair in found.headers if pair[0] not in dropped)
    message = Message(
        id=_id(told.message_id or found.id),
        body=found.body if told.body is None else told.body,
        sent_at=min(told.sent_at or found.sent_at or found.at or now, now),
        headers=headers,
        content_type=found.content_type,
        key=found.key,
        expires_at=told.expires_at,
        reply_to=found.reply_to,
        lineage=lineage,
    )
    return structs.replace(
        message, traceparent=message.header("traceparent"), tracestate=message.header("tracestate")
    )


def _said(found: Found, told: DeathReport) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return what people see of a place and its dialects, and the headers it repeats.

    The first has fields, and headers that neither they nor the letter repeat.
    """
    fields = _filled({**found.said, **told.fields})
    said = {name: _text(text) for name, text in fields.items()}
    retold: dict[str, str] = {}
    for name, value in found.headers:
        shown = retold if name in told.retold else said
        if name not in told.drops or (name not in shown and len(said) + len(retold) >= _MOST_SAID):
            continue
        text = value.decode("utf-8", "backslashreplace")
        if text not in (told.error_type, told.error_text, told.stack):
            # What was written more than once, one below the other.
            all_of_it = f"{shown[name]}\n{text}" if name in shown else text
            shown[name] = cut(_masked(all_of_it, STACK_LIMIT), STACK_LIMIT)
    return _named(said), _named(retold)


def _filled(fields: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in fields.items() if text}


def _named(said: dict[str, str]) -> dict[str, str]:
    return {_name(name): text for name, text in said.items()}


def _own(found: Found, now: datetime, keys: Keys) -> DeadLetter | None:
    """Return the letter of a replayed copy, under the identity of its original, or None."""
    told = DeathReport(
        dialect="deadletter",
        message_id=found.text("dlq-message-id"),
        drops=frozenset({"dlq-message-id", "dlq-sent-at"}) - OWN,
    )
    message = _message(found, told, now, None)
    for mailbox in _mailboxes(found.place):
        if is_copy(message, mailbox, keys):
            return _unwrapped(from_message(message, mailbox, keys, now), found)
    return None


def _unwrapped(letter: DeadLetter, found: Found) -> DeadLetter:
    """Return the letter of our own copy with the message inside its envelope, if it has one."""
    told = _asked(dlq_message, found)
    if told is None or told.body is None:
        return letter
    headers = tuple(pair for pair in letter.message.headers if pair[0] not in told.drops)
    message = structs.replace(letter.message, body=told.body, headers=headers, content_type=None)
    head = structs.replace(letter.head, size=len(told.body))
    return structs.replace(letter, message=message, head=head)


def _mailboxes(place: str) -> Iterator[str]:
    """Yield the mailboxes that a place may be: some engines add a prefix to the name."""
    yield place
    for end in list(_SEPARATOR.finditer(place))[:_PREFIXES]:
        yield place[end.end() :]


def _reason(told: DeathReport) -> Reason:
    if not told.error_type and not told.error_text and not told.stack:
        return Reason.OPERATOR
    return Reason.ATTEMPTS_EXHAUSTED if told.attempts > 1 else Reason.FATAL_ERROR


def _found_in(found: Found, told: DeathReport) -> str:
    if told.dialect:
        return f"found in {found.place}"
    return f"found in {found.place}; it does not say how it got there"


def _failure(told: DeathReport) -> Failure:
    trouble, code = _judged(told)
    return Failure(
        trouble=trouble,
        code=code,
        error_type=_name(told.error_type),
        text=_text(told.error_text),
        stack=_stack(told.stack),
    )


def _judged(told: DeathReport) -> tuple[Trouble, str]:
    if told.trouble is not None:
        return told.trouble, _name(told.code) or told.trouble.upper()
    if not told.error_type and not told.error_text:
        return Trouble.UNKNOWN, ""
    name = _name(told.error_type).rpartition(".")[2]
    error = _error(name)(_text(told.error_text))
    if told.status:
        error.status_code = told.status  # type: ignore[attr-defined]
    verdict = DEFAULT.classify(error)
    return verdict.trouble, verdict.code


@lru_cache(maxsize=256)
def _error(name: str) -> type[Exception]:
    # Only its name is known, and nothing is imported to find out more.
    try:
        return type(name or "Exception", (Exception,), {})
    except (ValueError, UnicodeError):
        return Exception


def _id(text: str) -> str:
    if len(text) <= _NAME and text.isprintable() and text:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"sha256-{digest[:32]}"


def _name(text: str) -> str:
    return cut(plain_line(text[:_MARGIN]).strip(), _NAME)


def _text(text: str) -> str:
    return cut(_masked(text, TEXT_LIMIT), TEXT_LIMIT)


def _masked(text: str, limit: int) -> str:
    return redact(plain(text[: limit + _MARGIN]))


def _stack(text: str) -> str:
    # The end of it is where most languages say what happened.
    told = redact(plain(text[-STACK_LIMIT - _MARGIN :])).encode("utf-8", "replace")
    return told[-STACK_LIMIT:].decode("utf-8", "ignore")
