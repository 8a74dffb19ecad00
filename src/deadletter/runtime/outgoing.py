"""Messages about to be sent, made from what an application gives to `send` and `send_many`."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypedDict, cast

from msgspec.structs import replace

from deadletter.core.errors import ConfigError
from deadletter.core.message import (
    MAX_ATTEMPTS,
    RESERVED,
    Headers,
    Message,
    as_headers,
    as_seconds,
    attempt_limit,
    checked,
    limit_header,
    sendable_headers,
)

from .handlers import encode


class SendOptions(TypedDict, total=False):
    """Options of one message in `send_many`, each as in `App.send`."""

    id: str | None
    key: str | None
    max_attempts: int | None
    expires_in: float | timedelta | None
    idempotency_key: str | None
    reply_to: str | None
    headers: Mapping[str, str | bytes] | None
    content_type: str | None
    traceparent: str | None
    tracestate: str | None


Item: TypeAlias = object | Message | tuple[object, SendOptions]
"""What `send_many` takes: a body, a Message, or a body with its options."""

_OPTIONS: Final = SendOptions.__annotations__.keys()
_TOGETHER: Final = ("delay", "at")  # of all messages of a call, so that all or none holds


def due_in(delay: object, at: object, now: datetime) -> float:
    """Return the seconds until a message is due, by a delay or a time."""
    if at is None:
        return as_seconds("delay", delay)
    if not isinstance(at, datetime):
        raise ConfigError(f"at={at!a} is not a time: use a datetime with a time zone")
    if at.utcoffset() is None:
        raise ConfigError(
            f"at={at.isoformat()} has no time zone: use datetime.now(UTC), or add tzinfo="
        )
    if as_seconds("delay", delay):
        raise ConfigError("delay= and at= cannot be combined: use one of them")
    return as_seconds("at", max(0.0, (at - now).total_seconds()))


def new_message(body: object, options: SendOptions, *, id: str, now: datetime) -> Message:
    """Return the message of a body; raise ConfigError for an invalid option."""
    if not id:
        raise ConfigError("id of a message is empty: give text, or leave it out")
    data, natural = encode(body)
    expires_in = options.get("expires_in")
    expires_at = None
    if expires_in is not None:
        expires_at = now + timedelta(seconds=as_seconds("expires_in", expires_in))
    return checked(
        Message(
            id=id,
            body=data,
            sent_at=now,
            headers=(
                *sendable_headers(options.get("headers")),
                *limit_header(options.get("max_attempts")),
            ),
            content_type=options.get("content_type") or natural,
            key=options.get("key"),
            expires_at=expires_at,
            reply_to=options.get("reply_to"),
            idempotency_key=options.get("idempotency_key"),
            traceparent=options.get("traceparent"),
            tracestate=options.get("tracestate"),
        )
    )


def new_messages(
    items: Iterable[Item],
    *,
    max_attempts: int | None,
    now: datetime,
    new_ids: Callable[[int], list[str]],
) -> list[Message]:
    """Return a message for each item, in their order; raise ConfigError for an invalid one."""
    limit = limit_header(max_attempts)
    given: list[Any] = list(items)
    if not any(issubclass(kind, (Message, tuple)) for kind in set(map(type, given))):
        return _of_bodies(given, limit, now, new_ids(len(given)))
    ids = iter(new_ids(sum(_needs_id(item) for item in given)))
    messages = []
    for item in given:
        if isinstance(item, Message):
            messages.append(_as_new(item, limit))
        elif _is_pair(item):
            options = _checked_options(item[1], max_attempts)
            id_ = next(ids) if options.get("id") is None else str(options["id"])
            messages.append(new_message(item[0], options, id=id_, now=now))
        else:
            data, natural = encode(item)
            messages.append(
                Message(id=next(ids), body=data, sent_at=now, headers=limit, content_type=natural)
            )
    return messages


def _of_bodies(
    bodies: list[object], limit: Headers, now: datetime, ids: list[str]
) -> list[Message]:
    # A path of its own: most calls have nothing but bodies, and this is per message.
    messages = []
    for body, id_ in zip(bodies, ids, strict=True):
        data, natural = encode(body)
        messages.append(
            Message(id=id_, body=data, sent_at=now, headers=limit, content_type=natural)
        )
    return messages


def _is_pair(item: Any) -> bool:
    return type(item) is tuple and len(item) == 2 and isinstance(item[1], dict)


def _needs_id(item: Any) -> bool:
    if isinstance(item, Message):
        return False
    return not (_is_pair(item) and item[1].get("id") is not None)


def _checked_options(options: Mapping[Any, Any], max_attempts: int | None) -> SendOptions:
    for name in options:
        if name in _TOGETHER:
            raise ConfigError(
                f"{name}= is an option of the whole send_many, not of one message: write"
                f" send_many(mailbox, items, {name}=…), or send this message by itself"
            )
        if name not in _OPTIONS:
            raise ConfigError(
                f"{str(name)[:100]!a} is not an option of a message: use {', '.join(_OPTIONS)}."
                " To send a pair as a body, send it as a list."
            )
    chosen = cast(SendOptions, dict(options))
    if chosen.get("max_attempts") is None:
        chosen["max_attempts"] = max_attempts
    return chosen


def _as_new(message: Message, limit: Headers) -> Message:
    """
    Return a message of the application, checked, to be sent as a new one.

    One that was received may be forwarded: its lineage and `dlq-` headers belong to the
    delivery it came with and stay behind, except for its own limit of attempts.
    """
    if not isinstance(message.body, bytes):
        raise ConfigError(
            f"the body of message {message.id!a} is of type {type(message.body).__name__}: a"
            " Message takes bytes. To send other bodies, give (body, options) instead."
        )
    for name in ("sent_at", "expires_at"):
        time = getattr(message, name)
        is_missing = time is None and name == "expires_at"
        if not is_missing and (not isinstance(time, datetime) or time.utcoffset() is None):
            raise ConfigError(
                f"{name}={time!a} of message {message.id!a} must be a datetime with a time zone"
            )
    own = attempt_limit(message)
    headers = tuple(
        pair
        for pair in as_headers(message.headers)
        if pair[0][: len(RESERVED)].lower() != RESERVED
        or (pair[0] == MAX_ATTEMPTS and own is not None)
    )
    if own is None:
        headers += limit
    return checked(replace(message, headers=headers, lineage=None))
