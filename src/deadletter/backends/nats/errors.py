"""What the client library raises and the server answers, in our words."""

from collections.abc import Mapping
from typing import Any, Final

from nats import errors as theirs

from deadletter.core.errors import BackendError, Refused, Unavailable

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


class Declined(Refused):
    """The server understood, and said no; `code` is its own for why."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Unheard(Unavailable):
    """Nobody listens there: no such stream or consumer, or it is not up yet."""


# First match wins.
_TABLE: Final[tuple[tuple[type[Exception], type[BackendError], str], ...]] = (
    (theirs.NoRespondersError, Unheard, "nobody answers for this stream"),
    (theirs.AuthorizationError, Unavailable, "the server refuses our password"),
    (theirs.MaxPayloadError, Refused, "larger than the server takes (max_payload)"),
    (theirs.BadSubjectError, Refused, "not a subject"),
    (theirs.BadHeaderError, Refused, "not a header"),
    (theirs.Error, Unavailable, "the server cannot be reached"),
    (OSError, Unavailable, "the server cannot be reached"),  # TimeoutError is one
)
KNOWN: Final = tuple(kind for kind, _, _ in _TABLE)

# Answers that deserve more than the server's own words.
_ANSWERS: Final[Mapping[int, str]] = {
    10076: "JetStream is not enabled on this server: start it with -js",
    10039: "JetStream is not enabled for our account: give it some in the server's"
    " configuration (jetstream: enabled)",
    _TOO_LARGE: "larger than the stream takes: raise its max_msg_size, or send less",
    10077: "the stream is full: raise its max_msgs or max_bytes, or let workers catch"
    " up",
    10047: "the server's store is full: raise max_file_store, or free some disk",
    10023: "the account has no resources left: raise its JetStream limits",
}
_PASSING: Final = frozenset({10077, 10047, 10023})  # full now, not for ever


def translated(error: Exception, said: str = "") -> BackendError:
    """The error in our words; `said` is what the server complained of lately."""
    for kind, ours, words in _TABLE:
        if isinstance(error, kind):
            return ours(f"{words}: {said or _text(error)}")
    raise error


def answered(answer: Mapping[str, Any]) -> BackendError:
    """The error in an answer of the server."""
    code = int(answer.get("err_code", 0))
    text = str(answer.get("description", "no reason given"))
    words = _ANSWERS.get(code)
    told = f"{words} ({text})" if words else f"the server refused: {text}"
    passing = int(answer.get("code", 0)) > _LARGEST_CLIENT_ERROR
    if code in _PASSING or (passing and code not in NO_JETSTREAM | {_TOO_LARGE}):
        return Unavailable(told)
    return Declined(told, code)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
