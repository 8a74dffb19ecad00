"""What errors of the relayer below mean, line by line as it was specified."""

import errno
import sqlite3
from pathlib import Path

import httpx
import pytest

from deadletter import PROFILES, ConfigError, ErrorCategory, Trouble
from deadletter.core.failure import Fail, Retry
from deadletter.core.failure.capture import capture
from deadletter.core.message import Delivery, Message
from deadletter.core.policy import Situation
from deadletter.system import SystemClock
from relayer.downstream import RelayError
from relayer.main_consumer import policy_of
from relayer.settings import QUEUE, read

CLASSIFIER = PROFILES["relayer"].policy.classifier
REQUEST = httpx.Request("POST", "http://relayer/transactions")


def category(error: BaseException) -> ErrorCategory:
    return CLASSIFIER.classify(error).trouble.category


def text(error: BaseException) -> str:
    return f"{type(error).__name__}({error})"


@pytest.mark.parametrize(
    "words",
    [
        "insufficient funds",
        "insufficient balance",
        "gas required exceeds allowance",
        "intrinsic gas too low",
        "out of gas",
        "nonce too low",
        "nonce already used",
        "execution reverted",
        "transaction would revert",
    ],
    ids=lambda words: words.replace(" ", "-"),
)
def test_words_of_the_chain_say_never(words: str) -> None:
    told = f"RPC error: {words.upper()} for 0x1"

    assert category(RelayError(told, 500)) is ErrorCategory.NON_RETRYABLE
    assert category(ValueError(told)) is ErrorCategory.NON_RETRYABLE


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_statuses_that_say_never(status: int) -> None:
    assert category(RelayError("no", status)) is ErrorCategory.NON_RETRYABLE


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_statuses_that_may_pass(status: int) -> None:
    assert category(RelayError("later", status)) is ErrorCategory.RETRYABLE


@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadTimeout("", request=REQUEST),
        TimeoutError(),
        RuntimeError("network timeout"),
        RuntimeError("ETIMEDOUT"),
    ],
    ids=text,
)
def test_a_timeout_may_pass(error: BaseException) -> None:
    assert category(error) is ErrorCategory.RETRYABLE
    assert CLASSIFIER.classify(error).trouble is Trouble.TRANSIENT


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("All connection attempts failed", request=REQUEST),
        ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
        RuntimeError("connect ECONNREFUSED 10.0.0.1:8545"),
        RuntimeError("connection refused"),
    ],
    ids=text,
)
def test_a_refused_connection_may_pass(error: BaseException) -> None:
    assert category(error) is ErrorCategory.RETRYABLE
    assert CLASSIFIER.classify(error).trouble is Trouble.TRANSIENT


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RelayError("gone", 404), ErrorCategory.NON_RETRYABLE),
        (RelayError("somebody was quicker", 409), ErrorCategory.RETRYABLE),
        (RelayError("gone", 410), ErrorCategory.NON_RETRYABLE),
        (RelayError("cannot", 501), ErrorCategory.NON_RETRYABLE),
        (sqlite3.OperationalError("disk I/O error"), ErrorCategory.RETRYABLE),
        (KeyError("id"), ErrorCategory.RETRYABLE),
        (RuntimeError(), ErrorCategory.RETRYABLE),
    ],
    ids=str,
)
def test_errors_outside_the_table_are_classified(
    error: BaseException, expected: ErrorCategory
) -> None:
    assert category(error) is expected


def test_words_come_before_statuses_in_both_directions() -> None:
    assert category(RelayError("nonce too low", 503)) is ErrorCategory.NON_RETRYABLE
    assert category(RelayError("request timeout", 400)) is ErrorCategory.NON_RETRYABLE


def test_the_two_categories_are_these_texts() -> None:
    assert [str(one) for one in ErrorCategory] == ["RETRYABLE", "NON_RETRYABLE"]


def test_patterns_can_be_added_in_a_file(tmp_path: Path) -> None:
    error = RelayError("Contract is paused", 503)
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[rules]]\nid = "paused"\ntrouble = "permanent"\ncode = "PAUSED"\n'
        'texts = ["contract is paused"]\n'
    )

    verdict = policy_of(read({"DLQ_RULES": str(file)})).classifier.classify(error)

    assert category(error) is ErrorCategory.RETRYABLE
    assert (verdict.rule, verdict.code) == ("paused", "PAUSED")
    assert verdict.trouble.category is ErrorCategory.NON_RETRYABLE
    with pytest.raises(ConfigError, match="DLQ_RULES"):
        read({"DLQ_RULES": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("error", "kind"),
    [(RelayError("no", 422), Fail), (RelayError("later", 503), Retry)],
    ids=["never", "may-pass"],
)
def test_the_category_decides(error: RelayError, kind: type) -> None:
    policy, now = policy_of(read({})), SystemClock().now()
    message = Message(id="m-1", body=b"{}", sent_at=now)
    situation = Situation(
        delivery=Delivery(message=message, mailbox=QUEUE),
        failure=capture(error, policy.classifier, now),
        error=error,
    )

    assert isinstance(policy.decide(situation, 0.0), kind)
