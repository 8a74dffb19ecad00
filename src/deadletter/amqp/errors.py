"""What the broker and the wire say, in our words."""

import ssl
from typing import Final

from deadletter.core.errors import (
    ConfigError,
    DeadLetterError,
    Refused,
    Unavailable,
)
from deadletter.tls import disagreement

from .address import Address


class Closed(Exception):
    """The broker closed a channel or a connection, and said why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}" if code else text)
        self.code = code
        self.text = text


class Gone(Closed):
    """The connection broke, or never came to be."""

    def __init__(self, text: str) -> None:
        super().__init__(0, text)


# By AMQP's reply codes; what is not here may pass.
_TABLE: Final[dict[int, tuple[type[DeadLetterError], str]]] = {
    311: (Refused, "the message is too large for the broker (max_message_size)"),
    403: (ConfigError, "our user may not do this: give it the permissions"),
    404: (Unavailable, "the queue was deleted meanwhile, and is made again"),
    405: (ConfigError, "somebody has this queue for himself (an exclusive queue)"),
    406: (Unavailable, "the broker closed our channel"),
    501: (Unavailable, "the broker did not understand us"),
    506: (Unavailable, "the broker is short of resources"),
    530: (ConfigError, "the broker does not allow this"),
    540: (ConfigError, "the broker cannot do this"),
}


def translated(error: Exception) -> DeadLetterError:
    """The error in our words; it becomes the cause of what is raised."""
    if isinstance(error, DeadLetterError):
        return error
    if isinstance(error, Gone):
        return Unavailable(f"the broker cannot be reached: {error}")
    if isinstance(error, Closed):
        kind, words = _TABLE.get(error.code, (Unavailable, "the broker closed it"))
        if "PRECONDITION_FAILED - message size" in error.text:
            kind, words = _TABLE[311]
        return kind(f"{words}: {error}")
    if isinstance(error, OSError):  # TimeoutError is one
        return Unavailable(f"the broker cannot be reached: {_text(error)}")
    raise error


def at_start(error: Exception, address: Address) -> DeadLetterError:
    """The error of the first connection: mostly something was set up wrongly."""
    where, vhost = address.where, address.vhost
    if isinstance(error, Closed) and error.code == 403:
        return ConfigError(
            f"{where} refuses us: put the right user and password into the URL, as in"
            f" amqp://user:password@host:5672/vhost ({error.text})"
        )
    if isinstance(error, Closed) and error.code == 530:
        return ConfigError(
            f"{where} does not let us into the vhost {vhost!a}: make it, or name"
            " another one at the end of the URL (amqp://host/name; the default one"
            f" is amqp://host/), and give our user permissions in it ({error.text})"
        )
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
        said = f"{_text(error)}; its port is mostly 5671"
        return disagreement(where, "?cafile=", "?certfile= and ?keyfile=", said)
    if isinstance(error, OSError | Gone):
        wishes = "" if address.tls else " Does it want TLS (amqps://)?"
        return Unavailable(
            f"no answer from {where}: is RabbitMQ running, and is the URL right?"
            f"{wishes} ({_text(error)})"
        )
    return translated(error)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
