"""Streams and consumers: made, checked, deleted."""

from typing import Any, Final

from deadletter.core.errors import ConfigError
from deadletter.nats_login import OURS

from .errors import (
    CONSUMER_EXISTS,
    CONSUMER_NOT_FOUND,
    NAME_IN_USE,
    NOT_UNIQUE,
    STREAM_NOT_FOUND,
    SUBJECTS_OVERLAP,
    Declined,
)
from .link import Link
from .names import Place

MARGIN: Final = 1.0  # seconds the server waits longer than we believe it does
_NANO: Final = 1_000_000_000
_NO_LIMIT: Final = -1


async def make_stream(link: Link, place: Place, *, replicas: int) -> None:
    """Have the stream of a mailbox; somebody else's must be there already."""
    if not place.own:
        await _check_stream(link, place)
        return
    config = {
        "name": place.stream,
        "description": f"{OURS}the messages of a mailbox",
        "subjects": [place.subject],
        "retention": "workqueue",
        "storage": "file",
        "discard": "new",  # full is an error for the sender, not the end of a message
        "num_replicas": replicas,
        "allow_direct": True,
    }
    try:
        await link.ask(f"STREAM.CREATE.{place.stream}", config)
    except Declined as error:
        if error.code == NAME_IN_USE:  # there already, edited by somebody
            return
        if error.code == SUBJECTS_OVERLAP:
            raise ConfigError(
                f"another stream takes the subject {place.subject} already: use it with"
                " ?stream=NAME in the URL, or choose another ?prefix="
            ) from error
        raise


async def make_consumer(link: Link, place: Place, lease: float) -> float:
    """
    Have a durable consumer that waits for us longer than a lease lasts.

    Says how long it waits. One that is there already may wait longer, and must not
    give up by itself.
    """
    wanted = link.nanos(lease + MARGIN)
    while True:
        config = await consumer_config(link, place)
        if config is None:
            try:
                await _put_consumer(link, place, _new(place, wanted), "create")
            except Declined as error:
                if error.code == CONSUMER_EXISTS:
                    continue  # somebody was faster
                raise _explained(error, place) from error
            waits = wanted
        else:
            _check_consumer(config, place)
            with link.reading():
                waits = int(config["ack_wait"])
            if waits < wanted:
                config["ack_wait"] = waits = wanted
                await _put_consumer(link, place, config, "update")
        return waits / _NANO / link.second


async def consumer_config(link: Link, place: Place) -> dict[str, Any] | None:
    """How a mailbox's consumer is set up; None when there is none."""
    info = await consumer_info(link, place)
    if info is None:
        return None
    with link.reading():
        config: dict[str, Any] = info["config"]
    return config


async def consumer_info(link: Link, place: Place) -> dict[str, Any] | None:
    """What a mailbox's consumer says of itself; None when there is none."""
    try:
        return await link.ask(f"CONSUMER.INFO.{place.stream}.{place.durable}")
    except Declined as error:
        if error.code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
            return None
        raise


async def stream_state(link: Link, place: Place) -> dict[str, Any] | None:
    """What is in a mailbox's stream; None when there is none."""
    try:
        info = await link.ask(
            f"STREAM.INFO.{place.stream}", {"subjects_filter": place.subject}
        )
    except Declined as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise
    with link.reading():
        state: dict[str, Any] = info["state"]
    return state


async def purge(link: Link, stream: str, subject: str) -> int:
    """Remove all messages on a subject; how many there were."""
    try:
        answer = await link.ask(f"STREAM.PURGE.{stream}", {"filter": subject})
    except Declined as error:
        if error.code == STREAM_NOT_FOUND:
            return 0
        raise
    return int(answer.get("purged", 0))


async def delete(link: Link, place: Place) -> int:
    """Remove a mailbox's messages, and what was made for it; how many there were."""
    purged = await purge(link, place.stream, place.subject)
    what = (
        f"STREAM.DELETE.{place.stream}"
        if place.own
        else f"CONSUMER.DELETE.{place.stream}.{place.durable}"
    )
    try:
        await link.ask(what)
    except Declined as error:
        if error.code not in (STREAM_NOT_FOUND, CONSUMER_NOT_FOUND):
            raise
    return purged


async def _check_stream(link: Link, place: Place) -> None:
    try:
        answer = await link.ask("STREAM.NAMES", {"subject": place.subject})
    except Declined as error:
        raise _explained(error, place) from error
    found = answer.get("streams") or []
    if place.stream not in found:
        raise ConfigError(
            f"the stream {place.stream} does not take the subject {place.subject}: make"
            f" it, or add the subject: nats stream edit {place.stream} --subjects=…"
        )


def _new(place: Place, ack_wait: int) -> dict[str, Any]:
    return {
        "durable_name": place.durable,
        "name": place.durable,
        "filter_subject": place.subject,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": ack_wait,
        "max_deliver": _NO_LIMIT,  # who gives up, and when, is decided above
        "max_ack_pending": _NO_LIMIT,  # what waits for its retry must not block others
        "replay_policy": "instant",
    }


def gives_up(config: dict[str, Any], place: Place) -> str | None:
    """Why a consumer would lose messages by itself; None when it would not."""
    limit = config.get("max_deliver", _NO_LIMIT)
    if limit <= 0:
        return None
    return (
        f"{_called(place)} gives up by itself after {limit} deliveries (max_deliver),"
        " and leaves messages in the stream where nobody sees them: nats consumer edit"
        f" {place.stream} {place.durable} --max-deliver=-1"
    )


def _called(place: Place) -> str:
    return f"the consumer {place.durable} of the stream {place.stream}"


def _check_consumer(config: dict[str, Any], place: Place) -> None:
    called = _called(place)
    if problem := gives_up(config, place):
        raise ConfigError(problem)
    if config.get("backoff"):
        raise ConfigError(
            f"{called} has a backoff of its own, which cuts our leases short: make it"
            " anew without one"
        )
    if config.get("deliver_subject") or config.get("ack_policy") != "explicit":
        raise ConfigError(
            f"{called} is not a pull consumer with explicit acks: name another one with"
            " ?consumer= in the URL"
        )


async def _put_consumer(
    link: Link, place: Place, config: dict[str, Any], action: str
) -> None:
    subject = f"CONSUMER.CREATE.{place.stream}.{place.durable}"
    if config.get("filter_subject"):
        subject += f".{config['filter_subject']}"
    body = {"stream_name": place.stream, "config": config, "action": action}
    await link.ask(subject, body)


def _explained(error: Declined, place: Place) -> Exception:
    if error.code in NOT_UNIQUE:
        return ConfigError(
            f"somebody else reads {place.subject} from the work queue {place.stream}:"
            " name that consumer with ?consumer= in the URL, or delete it"
        )
    return error
