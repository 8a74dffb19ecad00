"""A mailbox's options, as SQS keeps them: a redrive policy and tags."""

from re import compile as pattern
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.ports.broker import QueueOptions

from .names import Names, is_fifo

MOST_RECEIVES: Final = 1000
RETENTION: Final = 14 * 86_400  # seconds, the longest there is
_ATTEMPTS: Final = "dlq-max-attempts"
_EXPIRY: Final = "dlq-expire-after"
_REFERENCE: Final = "dlq-reference"
TAGS: Final = (_ATTEMPTS, _EXPIRY, _REFERENCE)
_TAG: Final = pattern(r"[\w \-.:/=+@]{0,256}")


class Redrive(Struct, frozen=True, rename="camel"):
    """SQS's own dead-lettering: where to, and after how many receives."""

    dead_letter_target_arn: str
    max_receive_count: int

    @property
    def queue(self) -> str:
        """The name of the dead queue."""
        return self.dead_letter_target_arn.rpartition(":")[2]


_redrive: Final = msgspec.json.Decoder(Redrive, strict=False).decode


def check_options(options: QueueOptions) -> None:
    """Refuse what SQS cannot keep."""
    if not _TAG.fullmatch(options.reference):
        raise ConfigError(
            "a reference is a tag on SQS: up to 256 letters, digits, spaces and"
            " any of _ . : / = + - @"
        )
    if options.dead_queue is None:
        return
    if is_fifo(options.name) is not is_fifo(options.dead_queue):
        raise ConfigError(
            f"the dead queue of a FIFO queue is FIFO, and of a standard one standard:"
            f" {options.name} cannot have {options.dead_queue}"
        )
    if options.max_attempts == 1:
        raise ConfigError(
            "with max_attempts 1 SQS would move a message to the dead queue when its"
            " worker dies, before anybody can look at it: give it 2 or more"
        )


def redrive_of(attributes: dict[str, str]) -> Redrive | None:
    """The redrive policy of a queue."""
    try:
        return _redrive(attributes["RedrivePolicy"])
    except (KeyError, msgspec.MsgspecError):
        return None


def redrive_text(options: QueueOptions, target_arn: str | None) -> str:
    """The redrive policy that a mailbox asks for; empty takes it away."""
    if target_arn is None:
        return ""
    count = min(options.max_attempts or MOST_RECEIVES, MOST_RECEIVES)
    policy = {"deadLetterTargetArn": target_arn, "maxReceiveCount": str(count)}
    return msgspec.json.encode(policy).decode()


def tags_of(options: QueueOptions) -> dict[str, str]:
    """What is written on a queue for us."""
    tags = {}
    if options.max_attempts:
        tags[_ATTEMPTS] = str(options.max_attempts)
    if options.expire_after is not None:
        tags[_EXPIRY] = repr(options.expire_after)
    if options.reference:
        tags[_REFERENCE] = options.reference
    return tags


def options_of(
    name: str, attributes: dict[str, str], tags: dict[str, Any], names: Names
) -> QueueOptions:
    """The options that a queue's attributes and tags say."""
    redrive = redrive_of(attributes)
    limit, dead = 0, None
    if redrive is not None:
        # The most there is means no limit; one of another prefix has its whole name.
        if redrive.max_receive_count < MOST_RECEIVES:
            limit = redrive.max_receive_count
        dead = names.mailbox(redrive.queue) or redrive.queue
    return QueueOptions(
        name=name,
        dead_queue=dead,
        max_attempts=int(_number(tags.get(_ATTEMPTS)) or limit),
        expire_after=_number(tags.get(_EXPIRY)),
        reference=str(tags.get(_REFERENCE, "")),
    )


def conflict(name: str, attempts: int, *, redrive: Redrive | None) -> str | None:
    """
    Why SQS would take messages away before a worker has tried so often.

    On a standard queue every retry is a new copy, and SQS counts only receives that
    nobody answered for; in a FIFO queue it counts them all.
    """
    if redrive is None:
        return None
    needed = 2
    if is_fifo(name):
        needed = min(attempts + 1, MOST_RECEIVES) if attempts else MOST_RECEIVES
    if redrive.max_receive_count < needed:
        return (
            f"{name}: SQS moves a message to {redrive.queue} after"
            f" {redrive.max_receive_count} receives (maxReceiveCount), but its handler"
            f" may need {needed}: the office would never see it. Set maxReceiveCount to"
            f" {needed} or more, or max_attempts lower"
        )
    return None


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None
