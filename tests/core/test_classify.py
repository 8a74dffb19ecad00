import asyncio
import threading
from datetime import UTC, datetime
from enum import Enum

import pytest

from deadletter.core.errors import ConfigError
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


def test_the_first_rule_that_matches_wins() -> None:
    classifier = ErrorClassifier(
        (
            Rule(id="a", trouble=TRANSIENT, texts=("nothing",)),
            Rule(id="b", trouble=PERMANENT, types=(ValueError,), code="B"),
            Rule(id="c", trouble=TRANSIENT, types=(Exception,)),
        )
    )

    assert classifier.classify(ValueError("x")).rule == "b"
    assert classifier.classify(ValueError("nothing")).rule == "a"
    assert classifier.classify(KeyError("x")).rule == "c"


def test_own_rules_come_before_those_extended() -> None:
    mine = Rule(id="mine", trouble=PERMANENT, types=(TimeoutError,), code="TOO_SLOW")

    verdict = DEFAULT.extended(mine).classify(TimeoutError())

    assert (verdict.rule, verdict.code) == ("mine", "TOO_SLOW")
    assert DEFAULT.classify(TimeoutError()).trouble is TRANSIENT


def test_the_error_itself_is_asked_before_its_cause() -> None:
    error = Odd("nonsense")
    error.__cause__ = Closed("early")
    classifier = ErrorClassifier(
        (
            Rule(id="cause", trouble=TRANSIENT, exact=(Closed,)),
            Rule(id="self", trouble=PERMANENT, exact=(Odd,)),
        )
    )

    assert classifier.classify(error).rule == "self"


def raised_while_handling(*, suppressed: bool) -> BaseException:
    error = ValueError("second")
    error.__context__ = Closed("first")
    error.__suppress_context__ = suppressed
    return error


def test_a_context_counts_unless_it_was_suppressed() -> None:
    assert matches(raised_while_handling(suppressed=False), types=(Closed,))
    assert not matches(raised_while_handling(suppressed=True), types=(Closed,))


def test_a_chain_is_followed_only_so_far() -> None:
    def buried(depth: int) -> BaseException:
        error: BaseException = Closed()
        for _ in range(depth):
            above = ValueError()
            above.__cause__ = error
            error = above
        return error

    assert matches(buried(8), types=(Closed,))
    assert not matches(buried(9), types=(Closed,))


def test_causes_that_go_in_circles_come_to_an_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert not matches(first, types=(Odd,))


def test_members_of_groups_are_asked_after_causes() -> None:
    inner = ExceptionGroup("inner", [ValueError(), Closed()])
    group = ExceptionGroup("outer", [KeyError(), inner])

    assert matches(group, types=(Closed,))
    assert not matches(group, types=(TypeError,))
    assert matches(group, types=(ExceptionGroup,))


def test_a_huge_group_is_looked_at_in_part() -> None:
    group = ExceptionGroup("many", [ValueError() for _ in range(10_000)] + [Closed()])

    assert not matches(group, types=(Closed,))


# --- verdicts


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError(), "VALUE_ERROR"),
        (KeyboardInterrupt(), "KEYBOARD_INTERRUPT"),
        (asyncio.CancelledError(), "CANCELLED_ERROR"),
        (type("HTTPStatusError", (Exception,), {})(), "HTTP_STATUS_ERROR"),
        (type("error", (Exception,), {})(), "ERROR"),
        (type("Über-Fehler!", (Exception,), {})(), "BER_FEHLER"),
        (type("???", (Exception,), {})(), "ERROR"),
    ],
)
def test_an_error_no_rule_knows_is_unknown_under_its_own_name(
    error: BaseException, code: str
) -> None:
    verdict = ErrorClassifier().classify(error)

    assert (verdict.trouble, verdict.code, verdict.rule) == (Trouble.UNKNOWN, code, "")


class Doomed(Exception):
    dlq_trouble = Trouble.EXPIRED


class StillDoomed(Doomed):
    """Inherits what it is."""


def test_a_class_may_say_what_it_is_where_no_rule_does() -> None:
    own = ErrorClassifier().classify(StillDoomed())
    ruled = ErrorClassifier((rule(types=(Doomed,)),)).classify(StillDoomed())

    assert (own.trouble, own.rule) == (Trouble.EXPIRED, "dlq_trouble")
    assert (ruled.trouble, ruled.rule) == (PERMANENT, "it")


def test_a_class_that_says_nonsense_of_itself_is_unknown() -> None:
    odd = type("Odd", (Exception,), {"dlq_trouble": "permanent"})

    assert ErrorClassifier().classify(odd()).trouble is Trouble.UNKNOWN


def test_the_default_trouble_of_unmatched_errors_can_be_set() -> None:
    classifier = ErrorClassifier((), Trouble.PERMANENT)

    assert classifier.classify(ValueError()).trouble is PERMANENT
    assert classifier.extended().default is PERMANENT


@pytest.mark.parametrize(
    ("matchers", "code"),
    [
        ({"statuses": {503}}, "HTTP_503"),
        ({"grpc": {"UNAVAILABLE"}}, "GRPC_UNAVAILABLE"),
        ({"error_codes": {"E2"}}, "E2"),
        ({"types": (Odd,)}, "ODD"),
        ({"types": (Odd,), "code": "MINE"}, "MINE"),
    ],
)
def test_a_rule_without_a_code_takes_it_from_what_matched(
    matchers: dict[str, object], code: str
) -> None:
    error = Odd(status_code=503, grpc_status_code=GrpcCode.UNAVAILABLE, code="E2")

    assert ErrorClassifier((rule(**matchers),)).classify(error).code == code


# --- bad rules


@pytest.mark.parametrize(
    ("matchers", "says"),
    [
        ({}, "matches nothing"),
        ({"texts": "timeout"}, "list of texts"),
        ({"texts": ("",)}, "none of them empty"),
        ({"error_codes": "E1"}, "list of texts"),
        ({"exact": ValueError}, "list of exception types"),
        ({"types": ("ValueError",)}, "list of exception types"),
        ({"statuses": 503}, "list of numbers"),
        ({"pattern": "a+"}, r"re.compile\('a\+'\)"),
        ({"statuses": {42}}, "42 is not an HTTP status"),
        ({"grpc": {"BUSY"}}, "unknown gRPC status BUSY"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_advice(
    matchers: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        rule(**matchers)


def test_a_rule_needs_an_id() -> None:
    with pytest.raises(ConfigError, match="no id"):
        Rule(id=" ", trouble=TRANSIENT, types=(ValueError,))


# --- many kinds, many threads


def test_the_cache_of_error_kinds_is_bounded_and_correct() -> None:
    classifier = ErrorClassifier((rule(names=("Kind77*",)),))

    for number in range(3_000):
        kind = type(f"Kind{number}", (Exception,), {})
        expected = str(number).startswith("77")
        assert (classifier.classify(kind()).rule == "it") is expected

    assert len(classifier._kinds) <= 1024


def test_threads_may_share_a_classifier() -> None:
    classifier = ErrorClassifier(DEFAULT.rules)
    kinds = [type(f"Kind{n}Timeout", (Exception,), {}) for n in range(2_000)]
    codes: set[str] = set()

    def work() -> None:
        codes.update(classifier.classify(kind()).code for kind in kinds)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == {"TIMEOUT"}
