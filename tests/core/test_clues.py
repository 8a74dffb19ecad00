import errno
import io
import re
import socket
import ssl
import sys
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message as MailMessage
from enum import Enum, IntEnum
from http import HTTPStatus
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.failure import Trouble
from deadletter.core.failure.classify import ErrorClassifier, Rule
from deadletter.core.failure.rules import DEFAULT

NOW = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
PERMANENT, TRANSIENT = Trouble.PERMANENT, Trouble.TRANSIENT


class Odd(Exception):
    """An error with whatever a test puts on it."""

    def __init__(self, text: str = "", **carried: object) -> None:
        super().__init__(text)
        vars(self).update(carried)


class Closed(Odd):
    """A kind of odd error."""


class GrpcCode(Enum):
    UNAVAILABLE = (14, "unavailable")
    NOT_FOUND = (5, "not found")


def rule(**matchers: object) -> Rule:
    return Rule(id="it", trouble=PERMANENT, **matchers)  # type: ignore[arg-type]


def matches(error: BaseException, **matchers: object) -> bool:
    return ErrorClassifier((rule(**matchers),)).classify(error, NOW).rule == "it"


def test_an_exact_type_does_not_match_a_subclass() -> None:
    assert matches(Odd(), exact=(Odd,))
    assert not matches(Closed(), exact=(Odd,))


def test_a_type_matches_its_subclasses() -> None:
    assert matches(Closed(), types=(ValueError, Odd))
    assert not matches(ValueError(), types=(Odd,))


def test_a_name_part_is_found_in_the_name_or_an_ancestors_in_any_case() -> None:
    class ReadTimeout(Exception): ...

    class SlowBank(ReadTimeout): ...

    assert matches(ReadTimeout(), name_parts=("timeout",))
    assert matches(SlowBank(), name_parts=("TIMEOUT", "x"))
    assert not matches(Odd(), name_parts=("timeout",))
    assert not matches(Odd(), name_parts=("exception",))  # all errors are those


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("Closed", True),
        ("Odd", True),  # an ancestor
        ("*.Closed", True),
        ("*test_clues.*", True),
        ("Clos*", True),
        ("closed", False),
        ("other.Closed", False),
        ("Exception", False),
    ],
)
def test_a_name_glob_sees_the_module_only_if_it_has_a_dot(glob: str, expected: bool) -> None:
    assert matches(Closed(), names=(glob,)) is expected


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ECONNREFUSED, "x"), "ECONNREFUSED"),
        (OSError(errno.ENOSPC, "x"), "ENOSPC"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "EAI_AGAIN"),
        (Odd(code="ECONNRESET"), "ECONNRESET"),
        (Odd(code=-32000), "-32000"),
        (Odd(code=GrpcCode.NOT_FOUND), "NOT_FOUND"),
        (Odd(errno=1205), "1205"),
        (Odd(errno="ENOTFOUND"), "ENOTFOUND"),
        (Odd(sqlstate="40P01"), "40P01"),
        (Odd(pgcode="40001"), "40001"),
        (Odd(sqlite_errorname="SQLITE_BUSY"), "SQLITE_BUSY"),
        (Odd(response={"Error": {"Code": "SlowDown"}}), "SlowDown"),
    ],
)
def test_error_codes_are_found_where_libraries_put_them(error: BaseException, code: str) -> None:
    assert matches(error, error_codes={code, "OTHER"})
    assert not matches(error, error_codes={"OTHER"})


def test_codes_may_be_given_as_any_collection() -> None:
    assert matches(Odd(code="E1"), error_codes=["E1"])
    assert matches(Odd(code="E1"), error_codes=("E0", "E1"))


def test_numbers_that_only_look_like_errno_are_not_taken_for_it() -> None:
    want_read = ssl.SSLWantReadError(2, "want read")
    want_read.library = "SSL"
    not_os = Odd(errno=errno.ECONNREFUSED)

    assert not matches(want_read, error_codes={"ENOENT"})
    assert not matches(not_os, error_codes={"ECONNREFUSED"})


class _Explosive:
    @property
    def status_code(self) -> int:
        raise RuntimeError("no")

    status = 503


@pytest.mark.parametrize(
    "error",
    [
        Odd(status_code=503),
        Odd(status=503),
        Odd(status=HTTPStatus.SERVICE_UNAVAILABLE),
        Odd(response=SimpleNamespace(status_code=503)),
        Odd(response=SimpleNamespace(status=503)),
        Odd(response=_Explosive()),
        Odd(response={"ResponseMetadata": {"HTTPStatusCode": 503}}),
        Odd(code=503),
        urllib.error.HTTPError("http://x", 503, "no", MailMessage(), io.BytesIO()),
    ],
)
def test_an_http_status_is_found_where_libraries_put_it(error: BaseException) -> None:
    assert matches(error, statuses={503})
    assert matches(error, statuses=range(500, 600))
    assert not matches(error, statuses=range(400, 500))


class _Falsy(SimpleNamespace):
    def __bool__(self) -> bool:
        return False


def test_a_response_that_is_false_for_bad_statuses_is_still_a_response() -> None:
    assert matches(Odd(response=_Falsy(status_code=404)), statuses={404})


@pytest.mark.parametrize(
    "error",
    [
        Odd(status_code=True),
        Odd(status_code="503"),
        Odd(status_code=7),
        Odd(code=1503),
        Odd(code=200),
        SystemExit(503),
        Odd(response=503),
    ],
)
def test_numbers_that_are_not_http_statuses_are_ignored(error: BaseException) -> None:
    assert not matches(error, statuses=range(100, 1000))


@pytest.mark.parametrize(
    "error",
    [
        Odd(code=lambda: GrpcCode.UNAVAILABLE),
        Odd(code=lambda: "UNAVAILABLE"),
        Odd(grpc_status_code=GrpcCode.UNAVAILABLE),
        Odd(status=GrpcCode.UNAVAILABLE),
    ],
)
def test_a_grpc_status_is_found_where_libraries_put_it(error: BaseException) -> None:
    assert matches(error, grpc={"UNAVAILABLE"})
    assert not matches(error, grpc={"NOT_FOUND"})


def test_words_of_a_text_are_found_in_any_case() -> None:
    assert matches(Odd("Insufficient FUNDS for gas"), texts=("x", "insufficient Funds"))
    assert not matches(Odd("enough"), texts=("insufficient funds",))


def test_words_are_taken_literally() -> None:
    assert not matches(Odd("axb"), texts=("a.b",))
    assert matches(Odd("a.*(b"), texts=(".*(",))


def test_a_pattern_looks_at_a_bounded_part_of_the_text() -> None:
    pattern = re.compile(r"code \d+")

    assert matches(Odd("failed: code 42"), pattern=pattern)
    assert not matches(Odd("x" * 10_000 + "code 42"), pattern=pattern)


def test_a_predicate_that_breaks_does_not_match() -> None:
    def breaks(error: BaseException) -> bool:
        raise KeyboardInterrupt

    assert matches(Odd(), predicate=lambda error: isinstance(error, Odd))
    assert not matches(Odd(), predicate=lambda error: 0)
    assert not matches(Odd(), predicate=breaks)


def test_everything_a_rule_names_must_hold() -> None:
    both = {"types": (Odd,), "statuses": {409}, "texts": ("stock",)}

    assert matches(Odd("out of stock", status=409), **both)
    assert not matches(Odd("out of stock", status=404), **both)
    assert not matches(Odd("other", status=409), **both)
    assert not matches(Odd("out of stock"), **both)


# --- how long to wait


def headers(value: str) -> SimpleNamespace:
    return SimpleNamespace(status_code=429, headers={"retry-after": value})


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Odd(retry_after=7), 7.0),
        (Odd(retry_after="2.5"), 2.5),
        (Odd(retry_after=timedelta(minutes=1)), 60.0),
        (Odd(headers={"Retry-After": "30"}), 30.0),
        (Odd(response=headers("30")), 30.0),
        (Odd(response=headers("Wed, 01 May 2024 12:01:30 GMT")), 90.0),
        (Odd(response=headers("Wed, 01 May 2024 12:01:30 -0000")), 90.0),
        (Odd(response=headers("Wed, 01 May 2024 11:00:00 GMT")), 0.0),
        (Odd(response={"ResponseMetadata": {"HTTPHeaders": {"retry-after": "3"}}}), 3.0),
        (Odd(retry_after=-1), None),
        (Odd(retry_after=True), None),
        (Odd(retry_after=float("nan")), None),
        (Odd(retry_after=10**400), None),
        (Odd(response=headers("soon")), None),
        (Odd(response=headers("inf")), None),
        (Odd(headers="Retry-After: 5"), None),
        (ValueError(), None),
    ],
)
def test_retry_after_is_passed_on(error: BaseException, seconds: float | None) -> None:
    assert DEFAULT.classify(error, NOW).retry_after == seconds


def test_a_date_to_wait_for_means_nothing_without_a_clock() -> None:
    error = Odd(response=headers("Wed, 01 May 2024 12:01:30 GMT"))

    assert DEFAULT.classify(error).retry_after is None


def test_a_wrapped_error_still_asks_for_its_wait() -> None:
    error = Closed("the bank is busy")
    error.__cause__ = Odd(response=headers("30"))
    known = Rule(id="bank", trouble=TRANSIENT, types=(Closed,))

    verdict = DEFAULT.extended(known).classify(error)

    assert (verdict.rule, verdict.retry_after) == ("bank", 30.0)


# --- anything at all


class Level(IntEnum):
    LOW = 1


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.sampled_from([GrpcCode.NOT_FOUND, Level.LOW, object(), print, sys, {}, []]),
    st.dictionaries(st.sampled_from(["Error", "ResponseMetadata"]), st.text()),
)
places = st.sampled_from(
    [
        *("code", "errno", "status_code", "status", "response", "headers", "sqlstate"),
        *("retry_after", "pgcode", "grpc_status_code", "sqlite_errorname"),
    ]
)


@given(st.text(), st.dictionaries(places, values))
def test_errors_with_any_attributes_are_classified(text: str, carried: dict[str, object]) -> None:
    verdict = DEFAULT.classify(Odd(text, **carried), NOW)

    assert isinstance(verdict.trouble, Trouble)
    assert verdict.code != "UNCLASSIFIABLE"
    assert verdict.code
