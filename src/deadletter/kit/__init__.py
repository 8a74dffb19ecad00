"""
Parts that every backend is built from: its errors, its URL, its client library, its tasks.

    ERRORS = ErrorTable("RabbitMQ", {403: (ConfigError, "…"), OSError: (NoAnswer, "…")})
    URL = UrlForm("RabbitMQ", {"amqp": 5672, "amqps": 5671}, Options, example="amqp://host/")

    address = URL.read(url)                  raises ConfigError, never with a password
    with ERRORS.translated():                raises our errors instead of the client's
        ...

`ErrorTable` translates the errors of a client library. `UrlForm` reads URLs, with the
options of a `msgspec.Struct`. `client_library` explains how to install a missing client.
`EngineTasks` runs every call to its end, also when the caller stops waiting.
`MailboxEngine` is the base of engines that keep no letters.
"""

from .engines import (
    EPOCH,
    EngineTasks,
    MailboxEngine,
    client_library,
    is_called_dead,
    micros,
    missing_client,
    opened_before_fork,
    send_in_turn,
    when,
    with_expiry,
)
from .errors import ErrorKey, ErrorRow, ErrorTable, NoAnswer, error_text
from .tls import check_files, context, disagreement
from .urls import Host, NoOptions, ServerUrl, UrlForm, near_names

__all__ = [
    "EPOCH",
    "EngineTasks",
    "ErrorKey",
    "ErrorRow",
    "ErrorTable",
    "Host",
    "MailboxEngine",
    "NoAnswer",
    "NoOptions",
    "ServerUrl",
    "UrlForm",
    "check_files",
    "client_library",
    "context",
    "disagreement",
    "error_text",
    "is_called_dead",
    "micros",
    "missing_client",
    "near_names",
    "opened_before_fork",
    "send_in_turn",
    "when",
    "with_expiry",
]
