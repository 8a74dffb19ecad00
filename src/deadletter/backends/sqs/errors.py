"""What the client library raises and the service answers, in our words."""

from typing import Any, Final

from botocore import exceptions as theirs  # type: ignore[import-untyped]

from deadletter.core.errors import (
    BackendError,
    ConfigError,
    PartlySent,
    Refused,
    Unavailable,
)


class SomeRefused(PartlySent, Refused):
    """SQS does not take some messages of a batch."""


class SomeUnsent(PartlySent, Unavailable):
    """SQS could not take some messages of a batch for now."""


class NoQueue(Unavailable):
    """The queue is not there, or not any more."""


class Gone(BackendError):
    """The claim on a message is over, or somebody else's by now."""


_SLOWER: Final = "the service asks us to slow down"
_RENEW: Final = (
    "our credentials have expired: renew them (aws sso login, or a new role session)"
)
_STRANGER: Final = "the service does not know our access key: check AWS_ACCESS_KEY_ID"
_ALLOW: Final = (
    "our identity may not do this: allow it sqs:SendMessage, ReceiveMessage,"
    " DeleteMessage, ChangeMessageVisibility, GetQueueUrl, GetQueueAttributes,"
    " ListQueues and ListQueueTags; CreateQueue, SetQueueAttributes, TagQueue,"
    " UntagQueue and DeleteQueue to make queues"
)

# What the service answers. Where nothing is said it is for good if the service
# says it was our fault (4xx), and passes otherwise.
_ANSWERS: Final[dict[str, tuple[type[BackendError], str]]] = {
    "NonExistentQueue": (NoQueue, "there is no such queue"),
    "QueueDoesNotExist": (NoQueue, "there is no such queue"),
    "QueueDeletedRecently": (
        Unavailable,
        "the queue was deleted a moment ago: SQS makes it again after 60 seconds",
    ),
    "InvalidAddress": (Refused, "the queue's address is not of this account or region"),
    "AccessDenied": (Refused, _ALLOW),
    "AccessDeniedException": (Refused, _ALLOW),
    "OverLimit": (
        Unavailable,
        "too many messages are claimed at once (120,000; FIFO 20,000): settle some",
    ),
    "RequestThrottled": (Unavailable, _SLOWER),
    "ThrottlingException": (Unavailable, _SLOWER),
    "Throttling": (Unavailable, _SLOWER),
    "KmsThrottled": (Unavailable, "the key service asks SQS to slow down"),
    "ExpiredToken": (Unavailable, _RENEW),
    "ExpiredTokenException": (Unavailable, _RENEW),
    "InvalidClientTokenId": (Unavailable, _STRANGER),
    "UnrecognizedClientException": (Unavailable, _STRANGER),
    "SignatureDoesNotMatch": (
        Unavailable,
        "our signature is wrong: check AWS_SECRET_ACCESS_KEY and this machine's clock",
    ),
    "RequestExpired": (Unavailable, "our clock is wrong: set this machine's clock"),
    "InvalidMessageContents": (
        Refused,
        "the message has characters that SQS does not take",
    ),
}
_SET_UP: Final = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch"}
)

_GONE: Final = frozenset(
    {"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight"}
)

KNOWN: Final = (theirs.BotoCoreError, theirs.ClientError, OSError)


def translated(error: Exception) -> BackendError | ConfigError:
    """The error in our words; it becomes the cause of what is raised."""
    match error:
        case theirs.ClientError():
            return _answered(error)
        case theirs.NoRegionError():
            return ConfigError(
                "no AWS region is set: write it into the URL, as in sqs://eu-west-1,"
                " or set AWS_REGION"
            )
        case theirs.NoCredentialsError() | theirs.PartialCredentialsError():
            return ConfigError(
                "there are no AWS credentials: set AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run where a role gives them"
            )
        case theirs.CredentialRetrievalError() | theirs.TokenRetrievalError():
            return Unavailable(f"AWS credentials cannot be had: {_text(error)}")
        case theirs.ProfileNotFound():
            return ConfigError(f"{_text(error)}: check AWS_PROFILE")
        case theirs.ParamValidationError():
            return Refused(f"the client refused: {_text(error)}")
    return Unavailable(f"SQS cannot be reached: {_text(error)}")


def at_start(error: Exception, where: str) -> ConfigError | BackendError:
    """The error of the first call: mostly something was set up wrongly."""
    ours = translated(error)
    if isinstance(ours, ConfigError):
        return ours
    if isinstance(error, theirs.ClientError):
        if code_of(error) in _SET_UP:
            return ConfigError(f"{where} refuses us: {ours}")
        return ours
    return Unavailable(
        f"no answer from {where}: is it running, and are the URL and the region right?"
        f" ({_text(error)})"
    )


def code_of(error: Any) -> str:
    """The service's short name for an error, without its decorations."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code.rpartition(".")[2].rpartition("#")[2]


def entry_error(failed: dict[str, Any]) -> BackendError:
    """Why one entry of a batch was not done."""
    code = str(failed.get("Code", "")).rpartition(".")[2]
    text = str(failed.get("Message", "") or code)
    if code in _GONE:
        return Gone(text)
    if code in _ANSWERS:
        kind, words = _ANSWERS[code]
        return kind(f"{words} ({text})")
    return Refused(text) if failed.get("SenderFault") else Unavailable(text)


def _answered(error: Any) -> BackendError:
    code = code_of(error)
    text = str(error.response.get("Error", {}).get("Message", "")) or code
    if code in _ANSWERS:
        kind, words = _ANSWERS[code]
        return kind(f"{words} ({text})")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    kind = Refused if 400 <= status < 500 else Unavailable
    return kind(f"SQS refused: {code}: {text}")


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
