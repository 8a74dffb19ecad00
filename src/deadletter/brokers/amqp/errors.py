"""Errors of the broker and of the network as errors of deadletter (reply codes: 4.8.2)."""

from collections.abc import Sequence
from typing import Final

from deadletter.core.errors import ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.kit import ErrorTable, NoAnswer

from .address import Address

_TOO_LARGE: Final = 311


class Closed(Exception):
    """The broker closed a channel or a connection, with a reply code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}" if code else text)
        self.code = code
        self.text = text


class Gone(Closed):
    """The connection broke, or could not be opened."""

    def __init__(self, text: str) -> None:
        super().__init__(0, text)


def _codes(error: Exception) -> Sequence[int]:
    if not isinstance(error, Closed) or not error.code:
        return ()
    if "PRECONDITION_FAILED - message size" in error.text:
        return (_TOO_LARGE,)
    return (error.code,)


# By reply code; any other is taken as temporary.
ERRORS: Final = ErrorTable(
    "RabbitMQ",
    {
        _TOO_LARGE: (Refused, "the message is too large for the broker (max_message_size)"),
        403: (ConfigError, "our user lacks permissions: grant configure, write and read"),
        404: (Unavailable, "the queue was deleted meanwhile, and is created again"),
        405: (ConfigError, "the queue is exclusive to another connection: use another queue"),
        406: (Unavailable, "the broker closed our channel"),
        501: (Unavailable, "the broker could not read our frame"),
        506: (Unavailable, "the broker is short of resources"),
        530: (ConfigError, "the broker does not allow this"),
        540: (ConfigError, "the broker does not implement this"),
        Gone: (NoAnswer, "the broker is unreachable"),
        Closed: (Unavailable, "the broker closed the channel or the connection"),
        OSError: (NoAnswer, "the broker is unreachable"),  # TimeoutError is one
    },
    opening={
        403: (
            ConfigError,
            (
                "{where} rejected our login: put the right user and password into the URL,"
                " as in amqp://user:password@host:5672/vhost"
            ),
        ),
        530: (
            ConfigError,
            (
                "{where} rejected our access to the vhost: create it, or name another one at"
                " the end of the URL (amqp://host/name; the default one is amqp://host/), and"
                " give our user permissions in it"
            ),
        ),
    },
    codes=_codes,
)
translated: Final = ERRORS.translate


def at_start(error: Exception, address: Address) -> DeadLetterError:
    """Return our error for a failed first connection."""
    hint = "" if address.tls else "Does it require TLS (amqps://)?"
    return ERRORS.translate_opening(error, address.where, hint)
