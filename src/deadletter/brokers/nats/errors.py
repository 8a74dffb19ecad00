"""Errors of the NATS client and server as errors of deadletter."""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from nats import errors as theirs

from deadletter.core.errors import BackendError, ConfigError, DeadLetterError, Refused, Unavailable
from deadletter.kit import ErrorTable, NoAnswer, disagreement, error_text

from .address import Login

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
CONSUMER_EXISTS: Final = 10148
MESSAGE_NOT_FOUND: Final = 10037
WRONG_SEQUENCE: Final = 10071
SUBJECTS_OVERLAP: Final = 10065
NAME_IN_USE: Final = 10058
NO_JETSTREAM: Final = frozenset({10076, 10039})
NOT_UNIQUE: Final = frozenset({10099, 10100})  # a second reader of a work queue
_TOO_LARGE: Final = 10054
_LARGEST_CLIENT_ERROR: Final = 499


class RequestRejected(Refused):
    """The server rejected a request; `code` is its own error code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class NoResponder(Unavailable):
    """No responder: the stream or consumer does not exist, or is not up yet."""


ERRORS: Final = ErrorTable(
    "NATS",
    {
        theirs.NoRespondersError: (NoResponder, "no responder for this stream"),
        theirs.AuthorizationError: (Unavailable, "the server rejected our login"),
        theirs.MaxPayloadError: (Refused, "larger than the server accepts (max_payload)"),
        theirs.BadSubjectError: (Refused, "invalid subject"),
        theirs.BadHeaderError: (Refused, "invalid header"),
        theirs.Error: (NoAnswer, "the server is unreachable"),
        OSError: (NoAnswer, "the server is unreachable"),  # TimeoutError is one
    },
)
KNOWN: Final = ERRORS.known

# Answers that need more than the text of the server.
_ANSWERS: Final[Mapping[int, str]] = {
    10076: "JetStream is not enabled on this server: start it with -js",
    10039: "JetStream is not enabled for our account: enable it in the server's"
    " configuration (jetstream: enabled)",
    _TOO_LARGE: "larger than the stream takes: raise its max_msg_size, or send less",
    10077: "the stream is full: raise its max_msgs or max_bytes, or let workers catch up",
    10047: "the server's store is full: raise max_file_store, or free some disk",
    10023: "the account has no resources left: raise its JetStream limits",
}
_TEMPORARY: Final = frozenset({10077, 10047, 10023})  # full now
translated: Final = ERRORS.translate


def answered(answer: Mapping[str, Any]) -> BackendError:
    """Return our error for an error in an answer of the server."""
    code = int(answer.get("err_code", 0))
    text = str(answer.get("description", "no reason given"))
    words = _ANSWERS.get(code)
    message = f"{words} ({text})" if words else f"the server refused: {text}"
    is_server_error = int(answer.get("code", 0)) > _LARGEST_CLIENT_ERROR
    if code in _TEMPORARY or (is_server_error and code not in NO_JETSTREAM | {_TOO_LARGE}):
        return Unavailable(message)
    return RequestRejected(message, code)


def at_start(error: Exception, login: Login) -> DeadLetterError:
    """Return our error for a failed first connection."""
    where, text = login.where, error_text(error)
    if isinstance(error, theirs.AuthorizationError) or "uthorization" in text:
        return ConfigError(
            f"{where} rejected our login: put the right user and password into the URL, as in"
            " nats://user:password@host:4222, or name the file with our credentials"
            f" (?creds=) ({text})"
        )
    if isinstance(error, theirs.InvalidUserCredentialsError) and login.creds:
        return bad_credentials(login.creds)
    if isinstance(error, theirs.SecureConnWantedError):
        return ConfigError(
            f"{where} does not ask for TLS, so no credentials were sent: have it require TLS,"
            f" or begin the URL with nats:// ({text})"
        )
    if isinstance(error, ssl.SSLError) and not login.tls:
        told = f"{text}; begin the URL with tls://"
        return disagreement(where, "?cafile=", "?certfile= and ?keyfile=", told)
    hint = ""
    if login.tls and not login.certfile:
        hint = "Does it require a client certificate (?certfile=, ?keyfile=)?"
    return ERRORS.translate_opening(error, where, hint)


def bad_credentials(file: str) -> ConfigError:
    """Return the error of a file that holds no credentials."""
    return ConfigError(
        f"?creds= of the NATS URL names {file}, which has no valid"
        " credentials: give the file that nsc, or the page of your account, created for"
        " a user"
    )
