import asyncio
import errno
import json
import socket
import sqlite3
import ssl
from types import SimpleNamespace

import msgspec
import pydantic
import pytest

from deadletter.core.errors import (
    GiveUp,
    LogicalFailure,
    Malformed,
    Refused,
    RetryLater,
    Unavailable,
)
from deadletter.core.failure import ErrorCategory, Trouble, Verdict
from deadletter.core.failure.classify import ErrorClassifier, Rule
from deadletter.core.failure.clues import GRPC_STATUSES
from deadletter.core.failure.rules import DEFAULT, GENERAL, GRPC, HTTP, NETWORK
from deadletter.profiles.courier import COURIER
from deadletter.profiles.mailbox import AGENT
from deadletter.profiles.pipeline import PIPELINE
from deadletter.profiles.relayer import EVM

LOGICAL, LOOP, MALFORMED = Trouble.LOGICAL, Trouble.LOOP, Trouble.MALFORMED
PERMANENT, TRANSIENT, UNKNOWN = Trouble.PERMANENT, Trouble.TRANSIENT, Trouble.UNKNOWN


class Odd(Exception):
    def __init__(self, text: str = "", **carried: object) -> None:
        super().__init__(text)
        vars(self).update(carried)


def named(name: str, text: str = "") -> BaseException:
    kind: type[BaseException] = type(name, (Exception,), {})
    return kind(text)


def rpc(status: str) -> BaseException:
    return Odd(code=lambda: SimpleNamespace(name=status))


def verdict(rules: tuple[Rule, ...], error: BaseException) -> Verdict:
    return ErrorClassifier(rules).classify(error)


@pytest.mark.parametrize("rules", [AGENT, COURIER, EVM, GENERAL, GRPC, HTTP, NETWORK, PIPELINE])
def test_every_rule_of_a_set_has_an_id_of_its_own(rules: tuple[Rule, ...]) -> None:
    ids = [rule.id for rule in rules]

    assert len(ids) == len(set(ids))


def test_every_default_rule_has_an_id_of_its_own() -> None:
    ids = [rule.id for rule in DEFAULT.rules]

    assert len(ids) == len(set(ids))


# --- relaying to a chain (R0.36 - R0.56)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("insufficient funds for gas * price + value", "INSUFFICIENT_FUNDS"),
        ("Insufficient balance", "INSUFFICIENT_FUNDS"),
        ("gas required exceeds allowance (0)", "GAS_LIMIT_EXCEEDED"),
        ("INTRINSIC GAS TOO LOW", "GAS_TOO_LOW"),
        ("out of gas", "OUT_OF_GAS"),
        ("nonce too low: next nonce 5", "NONCE_TOO_LOW"),
        ("nonce already used", "NONCE_USED"),
        ("execution reverted: ERC20", "EXECUTION_REVERTED"),
        ("transaction would revert", "WOULD_REVERT"),
    ],
)
def test_permanent_errors_of_the_chain_are_not_retried(text: str, code: str) -> None:
    found = verdict(EVM, Odd(text))

    assert (found.trouble, found.code) == (PERMANENT, code)
    assert found.trouble.category is ErrorCategory.NON_RETRYABLE


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_a_relayer_that_refuses_is_not_asked_again(status: int) -> None:
    found = verdict(EVM, Odd(status_code=status))

    assert (found.trouble, found.code) == (PERMANENT, f"HTTP_{status}")


@pytest.mark.parametrize(
    "error",
    [
        *(Odd(status_code=status) for status in (408, 429, 500, 502, 503, 504)),
        TimeoutError(),
        Odd("network timeout"),
        ConnectionRefusedError(),
        Odd("connect ECONNREFUSED 127.0.0.1:8545"),
        Odd("getaddrinfo ENOTFOUND node"),
        Odd("socket hang up"),
        Odd("connection refused"),
    ],
)
def test_a_relayer_in_trouble_is_asked_again(error: BaseException) -> None:
    assert verdict(EVM, error).trouble is TRANSIENT


def test_permanent_errors_of_the_chain_outweigh_a_retryable_status() -> None:
    error = Odd("nonce too low", status_code=503)

    assert verdict(EVM, error).code == "NONCE_TOO_LOW"


def test_a_refusal_outweighs_words_that_may_pass() -> None:
    assert verdict(EVM, Odd("timeout", status_code=400)).trouble is PERMANENT


def test_unforeseen_errors_of_a_relayer_are_retried() -> None:
    found = verdict(EVM, Odd("???", status_code=404))

    assert found.trouble is UNKNOWN
    assert found.trouble.category is ErrorCategory.RETRYABLE


# --- HTTP


@pytest.mark.parametrize("status", range(400, 600))
def test_every_error_status_means_something(status: int) -> None:
    later = {408, 409, 412, 421, 423, 425, 429, 499}
    never = {501, 505, 506, 508, 510, 511}

    found = verdict(HTTP, Odd(status_code=status))

    retried = status in later or (status >= 500 and status not in never)
    assert found.trouble is (TRANSIENT if retried else PERMANENT)
    assert found.code == f"HTTP_{status}"


@pytest.mark.parametrize("status", [100, 200, 302, 304, 600, 999])
def test_other_statuses_mean_nothing(status: int) -> None:
    assert verdict(HTTP, Odd(status_code=status)).trouble is UNKNOWN


# --- gRPC


@pytest.mark.parametrize("status", sorted(GRPC_STATUSES))
def test_every_grpc_status_means_something(status: str) -> None:
    later = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"}
    later |= {"CANCELLED"}
    unclear = {"INTERNAL", "UNKNOWN"}

    found = verdict(GRPC, rpc(status))

    expected = PERMANENT
    if status in later:
        expected = TRANSIENT
    if status in unclear:
        expected = UNKNOWN
    assert (found.trouble, found.code) == (expected, f"GRPC_{status}")
    assert found.rule


# --- the network and the machine


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ECONNREFUSED, "no"), "ECONNREFUSED"),
        (OSError(errno.ETIMEDOUT, "no"), "ETIMEDOUT"),
        (OSError(errno.ECONNRESET, "no"), "ECONNRESET"),
        (OSError(errno.EPIPE, "no"), "EPIPE"),
        (OSError(errno.EHOSTUNREACH, "no"), "EHOSTUNREACH"),
        (OSError(errno.ENETUNREACH, "no"), "ENETUNREACH"),
        (OSError(errno.ENOSPC, "disk full"), "ENOSPC"),
        (OSError(errno.EMFILE, "no"), "EMFILE"),
        (socket.gaierror(socket.EAI_AGAIN, "no"), "EAI_AGAIN"),
        (socket.gaierror(socket.EAI_NONAME, "no"), "EAI_NONAME"),
        (socket.gaierror("no number"), "DNS"),
        (Odd(code="ENOTFOUND"), "ENOTFOUND"),
        (ConnectionRefusedError(), "ECONNREFUSED"),
        (ConnectionResetError(), "ECONNRESET"),
        (BrokenPipeError(), "EPIPE"),
        (ConnectionError(), "CONNECTION"),
        (TimeoutError(), "TIMEOUT"),
        (asyncio.TimeoutError(), "TIMEOUT"),  # noqa: UP041 -- a name still in use
        (ssl.SSLCertVerificationError(1, "expired"), "CERTIFICATE"),
        (ssl.SSLError(1, "handshake"), "TLS"),
        (named("ReadTimeout"), "TIMEOUT"),
        (named("APIConnectionError"), "CONNECTION"),
        (named("ServerDisconnected"), "CONNECTION"),
        (Odd("[Errno -3] Temporary failure in name resolution"), "DNS"),
        (Odd("Connection reset by peer"), "ECONNRESET"),
        (Odd("Read timed out."), "TIMEOUT"),
    ],
)
def test_network_trouble_is_transient(error: BaseException, code: str) -> None:
    found = verdict(NETWORK, error)

    assert (found.trouble, found.code) == (TRANSIENT, code)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "x"), PermissionError(13, "x"), IsADirectoryError()]
)
def test_a_missing_file_is_no_network_trouble(error: BaseException) -> None:
    assert verdict(NETWORK, error).trouble is UNKNOWN


# --- couriers (R4.39 - R4.45)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (Odd(code="ECONNREFUSED"), TRANSIENT),
        (Odd(code="ETIMEDOUT"), TRANSIENT),
        (OSError(errno.ECONNREFUSED, "no"), TRANSIENT),
        (Odd(code="TIMEOUT"), TRANSIENT),
        (TimeoutError(), TRANSIENT),
        (named("RequestTimeoutError", "invalid state"), TRANSIENT),
        (named("ValidationError"), PERMANENT),
        (Odd("Validation failed for event"), PERMANENT),
        (Odd("malformed JSON"), PERMANENT),
        (named("MalformedEvent"), PERMANENT),
        (Odd("Invalid payload: no id"), PERMANENT),
        (Odd(code="INVALID_PAYLOAD"), PERMANENT),
        (Odd("the payload is invalid: no id"), PERMANENT),
        (named("InvalidPayloadError"), PERMANENT),
        (Odd("???"), UNKNOWN),
    ],
)
def test_courier_errors(error: BaseException, trouble: Trouble) -> None:
    assert verdict(COURIER, error).trouble is trouble


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (Odd("503: session invalid"), UNKNOWN),
        (Odd("session invalid", status_code=503), TRANSIENT),
        (Odd("invalid credentials"), UNKNOWN),
        (Odd("validation of the token failed", status_code=401), TRANSIENT),
        (Odd("the validation service timed out"), TRANSIENT),
        (Odd("validation failed: no such status", status_code=400), PERMANENT),
        (Odd("validation failed", status_code=500), PERMANENT),
        (Odd("", status_code=422), PERMANENT),
        (Odd("", status_code=500), TRANSIENT),
        (Odd("", status_code=501), TRANSIENT),
        (Odd("", status_code=400), UNKNOWN),
        (Odd("", status_code=404), UNKNOWN),
        (Odd("invalid state", code="INVALID_STATE"), UNKNOWN),
    ],
)
def test_only_what_is_wrong_with_a_courier_event_is_permanent(
    error: BaseException, trouble: Trouble
) -> None:
    assert verdict(COURIER, error).trouble is trouble


def test_an_unknown_courier_error_is_retried() -> None:
    assert verdict(COURIER, Odd("?")).trouble.category is ErrorCategory.RETRYABLE


# --- agents (R3.102 - R3.113)


@pytest.mark.parametrize(
    ("name", "trouble", "rule"),
    [
        ("MailboxConnectionError", TRANSIENT, "agent-retriable"),
        ("RateLimitError", TRANSIENT, "agent-retriable"),
        ("TimeoutError", TRANSIENT, "agent-retriable"),
        ("VisibilityExpansionRequired", TRANSIENT, "agent-retriable"),
        ("ValidationError", PERMANENT, "agent-not-retriable"),
        ("ContentPolicyViolation", PERMANENT, "agent-not-retriable"),
        ("AuthenticationError", PERMANENT, "agent-not-retriable"),
        ("QuotaExceededError", PERMANENT, "agent-not-retriable"),
        ("ProviderError", UNKNOWN, "agent-ambiguous"),
        ("SerializationError", UNKNOWN, "agent-ambiguous"),
        ("ResourceNotFoundError", UNKNOWN, "agent-ambiguous"),
        ("SomethingElse", UNKNOWN, ""),
    ],
)
def test_agent_errors(name: str, trouble: Trouble, rule: str) -> None:
    found = verdict(AGENT, named(name))

    assert (found.trouble, found.rule) == (trouble, rule)


# --- pipelines (R1.6 - R1.12)


@pytest.mark.parametrize(
    ("error", "trouble", "code"),
    [
        (LogicalFailure("module said no"), LOGICAL, "LOGICAL_FAILURE"),
        (named("ServiceDiscoveryError"), TRANSIENT, "MODULE_UNAVAILABLE"),
        (named("ModuleUnavailableException"), TRANSIENT, "MODULE_UNAVAILABLE"),
        (rpc("UNAVAILABLE"), TRANSIENT, "MODULE_UNAVAILABLE"),
        (rpc("DEADLINE_EXCEEDED"), TRANSIENT, "TIMEOUT"),
        (named("TimeoutException"), TRANSIENT, "TIMEOUT"),
        (OSError(errno.ECONNREFUSED, "no"), TRANSIENT, "ECONNREFUSED"),
        (Malformed("not a stream"), MALFORMED, "MALFORMED"),
        (named("MalformedPipeStream"), MALFORMED, "MALFORMED"),
        (named("InvalidPipeStreamException"), MALFORMED, "MALFORMED"),
        (named("MaxHopsExceeded"), LOOP, "MAX_HOPS_EXCEEDED"),
        (Odd("maximum hops exceeded: 32"), LOOP, "MAX_HOPS_EXCEEDED"),
        (rpc("INVALID_ARGUMENT"), PERMANENT, "GRPC_INVALID_ARGUMENT"),
    ],
)
def test_pipeline_errors(error: BaseException, trouble: Trouble, code: str) -> None:
    found = verdict(PIPELINE, error)

    assert (found.trouble, found.code) == (trouble, code)


# --- what holds everywhere


class Order(msgspec.Struct):
    amount: int


class Parcel(pydantic.BaseModel):
    weight: int


def invalid_struct() -> BaseException:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b'{"amount": "x"}', type=Order)
    return caught.value


def invalid_model() -> BaseException:
    with pytest.raises(pydantic.ValidationError) as caught:
        Parcel.model_validate({"weight": "heavy"})
    return caught.value


def locked_database() -> BaseException:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorname = "SQLITE_BUSY"
    return error


@pytest.mark.parametrize(
    ("error", "trouble", "code"),
    [
        (Malformed("no"), MALFORMED, "MALFORMED"),
        (invalid_struct(), MALFORMED, "INVALID"),
        (invalid_model(), MALFORMED, "INVALID"),
        (LogicalFailure("no"), LOGICAL, "LOGICAL_FAILURE"),
        (GiveUp("no"), PERMANENT, "GIVE_UP"),
        (RetryLater(1), TRANSIENT, "RETRY_LATER"),
        (Unavailable("no"), TRANSIENT, "UNAVAILABLE"),
        (Refused("no"), PERMANENT, "REFUSED"),
        (MemoryError(), TRANSIENT, "MEMORY_ERROR"),
        (locked_database(), TRANSIENT, "LOCKED"),
        (Odd("deadlock detected"), TRANSIENT, "LOCKED"),
        (Odd("could not serialize access due to x"), TRANSIENT, "LOCKED"),
        (Odd(sqlstate="40001"), TRANSIENT, "LOCKED"),
        (Odd(sqlstate="57P03"), TRANSIENT, "DATABASE_DOWN"),
        (
            Odd(
                response={
                    "Error": {"Code": "ThrottlingException"},
                    "ResponseMetadata": {"HTTPStatusCode": 400},
                }
            ),
            TRANSIENT,
            "THROTTLED",
        ),
        (Odd(status=503), TRANSIENT, "HTTP_503"),
        (Odd(status=404), PERMANENT, "HTTP_404"),
        (rpc("NOT_FOUND"), PERMANENT, "GRPC_NOT_FOUND"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), TRANSIENT, "ECONNREFUSED"),
    ],
)
def test_default_verdicts(error: BaseException, trouble: Trouble, code: str) -> None:
    found = DEFAULT.classify(error)

    assert (found.trouble, found.code) == (trouble, code)
    assert found.rule


@pytest.mark.parametrize(
    "kind",
    [
        *(TypeError, AttributeError, NameError, KeyError, AssertionError, ImportError),
        *(IndexError, ZeroDivisionError, RuntimeError),
    ],
)
def test_programming_errors_are_unknown_since_a_deploy_may_be_under_way(
    kind: type[Exception],
) -> None:
    found = DEFAULT.classify(kind("oops"))

    assert (found.trouble, found.rule) == (UNKNOWN, "")
    assert found.trouble.category is ErrorCategory.RETRYABLE
    assert found.code.endswith("ERROR")


def test_an_answer_that_cannot_be_read_is_not_the_messages_fault() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("<html>Bad gateway</html>")

    assert DEFAULT.classify(caught.value).trouble is UNKNOWN
