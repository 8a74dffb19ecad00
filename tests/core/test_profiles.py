"""The five profiles hold what the requirements say, number by number."""

import re
from collections.abc import Callable

import pytest
from msgspec import structs

from deadletter.core.backoff import Exponential, Fixed, Linear, NoBackoff
from deadletter.core.errors import ConfigError, GiveUp, LogicalFailure, Malformed
from deadletter.core.failure import Bury, Continue, Decision, ErrorCategory, Fail, Retry, Trouble
from deadletter.core.policy import Disposition, LimitMode
from deadletter.profiles import DAY, OUTAGE_BRAKE, PROFILES, Profile
from situations import decide

RELAYER, PIPELINE, LEASE_QUEUE, MAILBOX, COURIER = (
    PROFILES[name] for name in ("relayer", "pipeline", "lease_queue", "mailbox", "courier")
)


class WithStatus(Exception):
    """An HTTP error, as many libraries have it."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code


def made_of(profile: Profile, error: Exception, attempt: int = 1) -> Decision:
    """What the profile makes of an error, classification included."""
    verdict = profile.policy.classifier.classify(error)
    return decide(profile.policy, attempt, trouble=verdict.trouble, code=verdict.code, error=error)


def test_there_are_five_and_each_knows_its_name() -> None:
    assert [profile.name for profile in PROFILES.values()] == list(PROFILES)
    assert len(PROFILES) == 5


def test_limits_r0_20_r1_25_r2_1_r3_9_r4_32() -> None:
    limits = {name: profile.policy.max_attempts for name, profile in PROFILES.items()}

    assert limits == {"relayer": 3, "pipeline": 3, "lease_queue": 0, "mailbox": 5, "courier": 5}
    assert {p.policy.limit_mode for p in PROFILES.values()} == {LimitMode.REACHED}


def test_an_unreachable_module_does_not_stop_its_node_unless_switched_on_r1_7() -> None:
    assert PIPELINE.brake is None
    assert not OUTAGE_BRAKE.systemic


def test_backoffs_r1_32_r3_37_r4_33_to_36() -> None:
    assert RELAYER.policy.backoff == Fixed(60.0)
    assert RELAYER.sqs_retry == "visibility"  # R0.20
    assert isinstance(PIPELINE.policy.backoff, Linear)
    assert PIPELINE.policy.backoff.delay(2, 0.5) == 2 * PIPELINE.policy.backoff.step
    assert LEASE_QUEUE.policy.backoff == NoBackoff()
    assert MAILBOX.policy.backoff == Linear(60.0, cap=900.0)
    assert isinstance(COURIER.policy.backoff, Exponential)
    assert [COURIER.policy.backoff.delay(n, 0.0) for n in (1, 2, 3)] == [1, 2, 4]
    assert COURIER.policy.backoff.delay(1, 0.5) == pytest.approx(1.1)


@pytest.mark.parametrize(
    "text",
    [
        "insufficient funds for gas * price + value",
        "insufficient balance",
        "gas required exceeds allowance (21000)",
        "intrinsic gas too low",
        "out of gas",
        "nonce too low",
        "nonce already used",
        "execution reverted: SafeMath",
        "transaction would revert",
    ],
)
def test_the_relayer_fails_at_once_what_is_not_retryable_r0_18_r0_36_to_44(text: str) -> None:
    assert isinstance(made_of(RELAYER, Exception(text)), Fail)


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_the_relayer_fails_refused_requests_at_once_r0_45_to_48(status: int) -> None:
    assert isinstance(made_of(RELAYER, WithStatus(status)), Fail)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_the_relayer_retries_three_times_then_dead_letters_r0_51_to_59(status: int) -> None:
    error = WithStatus(status)

    assert made_of(RELAYER, error, 1) == Retry(60.0)
    assert made_of(RELAYER, error, 2) == Retry(60.0)
    assert isinstance(made_of(RELAYER, error, 3), Bury)


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionRefusedError(), KeyError("whatever"), WithStatus(599)]
)
def test_the_relayer_retries_the_network_and_the_unknown_r0_49_r0_50_r0_12(
    error: Exception,
) -> None:
    verdict = RELAYER.policy.classifier.classify(error)

    assert verdict.trouble.category is ErrorCategory.RETRYABLE
    assert isinstance(made_of(RELAYER, error), Retry)


def test_the_relayer_fails_a_malformed_body_at_once_r0_28_r0_58() -> None:
    assert isinstance(made_of(RELAYER, Malformed("not JSON")), Fail)


@pytest.mark.parametrize("trouble", [t for t in Trouble if t.category == "NON_RETRYABLE"])
def test_nothing_that_is_not_retryable_is_dead_lettered_by_the_relayer(trouble: Trouble) -> None:
    assert RELAYER.policy.disposition(trouble) == Disposition.FAIL


def test_the_relayer_polls_every_ten_seconds_and_deletes_r0_4_r0_21_r0_29() -> None:
    consumer = RELAYER.dlq_consumer

    assert consumer is not None
    assert (consumer.interval, consumer.wait) == (10.0, 10.0)
    assert consumer.discard_failures


def test_the_relayer_refuses_to_run_only_one_of_two_r0_25() -> None:
    RELAYER.check_consumers(worker=True, dlq_consumer=True)
    RELAYER.check_consumers(worker=False, dlq_consumer=False)

    with pytest.raises(ConfigError, match="start the DLQ consumer as well"):
        RELAYER.check_consumers(worker=True, dlq_consumer=False)
    with pytest.raises(ConfigError, match="start the worker as well"):
        RELAYER.check_consumers(worker=False, dlq_consumer=True)


@pytest.mark.parametrize("profile", [PIPELINE, LEASE_QUEUE, MAILBOX, COURIER])
def test_the_others_may_run_either_alone_r3_60(profile: Profile) -> None:
    profile.check_consumers(worker=True, dlq_consumer=False)
    profile.check_consumers(worker=False, dlq_consumer=True)


def test_the_pipeline_continues_after_a_logical_failure_r1_6_r1_36() -> None:
    decision = made_of(PIPELINE, LogicalFailure("no text in it"))

    assert decision == Continue("no text in it")


def test_the_pipeline_retries_what_is_unreachable_then_dead_letters_r1_7_to_10() -> None:
    for error in [ConnectionRefusedError(), TimeoutError()]:
        assert [type(made_of(PIPELINE, error, n)) for n in (1, 2, 3)] == [Retry, Retry, Bury]


def test_the_pipeline_does_not_retry_malformed_streams_and_loops_r1_11_r1_12() -> None:
    assert isinstance(made_of(PIPELINE, Malformed("no stream")), Bury)
    assert isinstance(decide(PIPELINE.policy, trouble=Trouble.LOOP), Bury)


@pytest.mark.parametrize("trouble", sorted(set(Trouble) - {Trouble.EXPIRED}))
def test_the_lease_queue_knows_no_errors_only_attempts_r2_1(trouble: Trouble) -> None:
    limited = structs.replace(LEASE_QUEUE.policy, max_attempts=2)

    assert decide(limited, 1, trouble=trouble) == Retry(0.0)
    assert isinstance(decide(limited, 2, trouble=trouble), Bury)
    assert isinstance(decide(limited, 1, error=GiveUp("dead: true")), Bury)


@pytest.mark.parametrize("trouble", [Trouble.PERMANENT, Trouble.UNKNOWN, Trouble.LOOP])
def test_the_mailbox_counts_what_is_not_listed_r3_12_r3_110(trouble: Trouble) -> None:
    assert decide(MAILBOX.policy, 4, trouble=trouble) == Retry(240.0)
    assert isinstance(decide(MAILBOX.policy, 5, trouble=trouble), Bury)


def test_the_mailbox_counts_every_failure_also_in_an_outage_r3_10_r3_17() -> None:
    assert MAILBOX.brake is None


def test_the_mailboxs_consumer_waits_twenty_seconds_and_nacks_an_hour_r3_61_r3_63() -> None:
    consumer = MAILBOX.dlq_consumer

    assert consumer is not None
    assert (consumer.wait, consumer.on_failure) == (20.0, 3600.0)
    assert consumer.visibility_timeout == 300.0
    assert not consumer.discard_failures


@pytest.mark.parametrize("profile", [PIPELINE, LEASE_QUEUE, COURIER])
def test_the_others_have_no_dlq_consumer_of_their_own(profile: Profile) -> None:
    assert profile.dlq_consumer is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: type("ValidationError", (Exception,), {})("bad field"),
        lambda: Exception("malformed event"),
        lambda: Exception("invalid payload"),
        lambda: Malformed("not JSON"),
    ],
)
def test_the_courier_dead_letters_permanent_errors_at_once_r4_38_r4_42_to_44(
    make: Callable[[], Exception],
) -> None:
    assert isinstance(made_of(COURIER, make()), Bury)


@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError(), KeyError("unknown")])
def test_the_courier_retries_the_transient_and_the_unknown_r4_37_r4_45(error: Exception) -> None:
    assert [type(made_of(COURIER, error, n)) for n in (1, 4, 5)] == [Retry, Retry, Bury]


@pytest.mark.parametrize("status", [401, 403, 404, 501])
def test_the_courier_retries_what_says_nothing_about_the_event_r4_45(status: int) -> None:
    assert isinstance(made_of(COURIER, WithStatus(status)), Retry)


def test_the_courier_has_no_brake_unless_it_is_given_one() -> None:
    assert COURIER.brake is None


@pytest.mark.parametrize(
    ("profile", "mailbox", "names", "dead"),
    [
        (RELAYER, "relay-transactions", {}, "relay-transactions-dlq"),  # R0.66
        (PIPELINE, "in", {"cluster": "prod", "node": "7"}, "dlq.prod.7"),  # R1.5
        (LEASE_QUEUE, "jobs", {}, None),
        (MAILBOX, "requests", {}, "requests-dlq"),  # R3.55
        (COURIER, "courier-events-main", {}, "courier-events-dlq"),  # R4.2
    ],
)
def test_dead_queues_are_named_as_each_system_names_them(
    profile: Profile, mailbox: str, names: dict[str, str], dead: str | None
) -> None:
    assert profile.dead_queue(mailbox, **names) == dead
    assert profile.policy_for(mailbox, **names).dead_queue == dead


def test_a_name_with_a_part_missing_is_refused() -> None:
    with pytest.raises(ConfigError, match="pass 'cluster'"):
        PIPELINE.dead_queue("in")


def test_retention_r3_117_r3_118_r4_50_r4_57() -> None:
    assert MAILBOX.retention.source == 259_200
    assert MAILBOX.retention.dead == 2_592_000
    assert COURIER.retention.dead == COURIER.retention.unreviewed == 90 * DAY
    assert COURIER.retention.ledger == 30 * DAY


# The environment: R0.88, R4.32-R4.35, R4.50


def test_the_courier_honours_its_variables() -> None:
    courier = COURIER.with_environment(
        {
            "RETRY_MAX_ATTEMPTS": "7",
            "RETRY_BACKOFF_BASE_MS": "250",
            "RETRY_BACKOFF_MULTIPLIER": "3",
            "RETRY_JITTER_PERCENT": "10",
            "DLQ_TTL_DAYS": "14",
        }
    )

    assert courier.policy.max_attempts == 7
    assert courier.policy.backoff == Exponential(0.25, 3.0, DAY, 0.1)
    assert courier.retention.dead == courier.retention.unreviewed == 14 * DAY
    assert courier.retention.ledger == 30 * DAY


def test_the_relayer_honours_its_poll_interval() -> None:
    relayer = RELAYER.with_environment({"DLQ_POLL_INTERVAL_MS": "2500"})

    assert relayer.dlq_consumer is not None
    assert relayer.dlq_consumer.interval == 2.5
    assert relayer.dlq_consumer.wait == 10.0


@pytest.mark.parametrize("environ", [{}, {"RETRY_MAX_ATTEMPTS": " "}, {"OTHER": "x"}])
def test_without_its_variables_a_profile_stays_as_it_is(environ: dict[str, str]) -> None:
    assert COURIER.with_environment(environ) == COURIER


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("RETRY_MAX_ATTEMPTS", "five", "a whole number of at least 1, got 'five'"),
        ("RETRY_MAX_ATTEMPTS", "0", "a whole number of at least 1, got '0'"),
        ("RETRY_MAX_ATTEMPTS", "2.5", "a whole number"),
        ("RETRY_BACKOFF_BASE_MS", "-1", "a number of at least 0"),
        ("RETRY_BACKOFF_BASE_MS", "nan", "a number of at least 0"),
        ("RETRY_BACKOFF_BASE_MS", "inf", "a number of at least 0"),
        ("RETRY_BACKOFF_MULTIPLIER", "0.5", "a number of at least 1"),
        ("RETRY_JITTER_PERCENT", "120", "a number from 0 to 100"),
        ("DLQ_TTL_DAYS", "0", "a number of at least 1"),
    ],
)
def test_invalid_variables_are_rejected_by_name(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be {re.escape(sentence)}"):
        COURIER.with_environment({name: text})
