"""How often an event is tried, after how long, and which errors are worth it."""

import pytest

from courier.settings import profile
from deadletter import DLQPolicy, Exponential, State
from deadletter.core.events import BrakeOpened, Retried
from deadletter.core.failure import Reason, Trouble
from deadletter.testing.fakes import eventually
from servers.common import free_port
from systems.courier.rig import PAYLOAD, Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

LEAST = {
    "eventId": "evt_9",
    "eventType": "x",
    "idempotencyKey": "a:9",
    "traceId": "t",
    "payload": {},
}
TRANSIENT = ["ECONNREFUSED", "ETIMEDOUT", "TIMEOUT", "DOWNSTREAM_TIMEOUT"]


def retries(rig: Rig) -> list[Retried]:
    return [one for one in rig.events if isinstance(one, Retried)]


class TestFiveAttempts:
    """As it is without variables, but for the seconds."""

    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"RETRY_MAX_ATTEMPTS": "", "RETRY_BACKOFF_BASE_MS": "20"}

    async def test_an_event_is_tried_five_times_and_each_knows_which_it_is(self, rig: Rig) -> None:
        rig.fault(status=503, message="not today")
        await rig.report()

        await rig.work()
        letter = await rig.until_letter(State.PENDING)

        assert [one.attempt for one in rig.stand.seen] == [1, 2, 3, 4, 5]
        assert letter.head.attempts == 5
        assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
        assert [one.number for one in letter.story()] == [1, 2, 3, 4, 5]

    async def test_the_attempt_in_the_queued_payload_counts_up(self, rig: Rig) -> None:
        rig.fault(status=429, retry_after="0.3")
        await rig.report()
        seen: list[int] = []

        async def has_counted_to_five() -> bool:
            if (attempt := (await rig.queued())["attempt"]) not in seen:
                seen.append(attempt)
            return attempt == 5

        await rig.work()
        await eventually(has_counted_to_five, within=20)

        assert seen == [1, 2, 3, 4, 5]
        assert PAYLOAD in (await rig.until_letter(State.PENDING)).message.body

    async def test_delays_double_and_have_up_to_a_fifth_more(self, rig: Rig) -> None:
        rig.fault(status=503)
        await rig.report()

        await rig.work()
        await rig.until_letter(State.PENDING)

        delays = [one.delay for one in retries(rig)]
        assert len(delays) == 4
        for n, delay in enumerate(delays):
            plain = 0.020 * 2**n
            assert plain <= delay <= plain * 1.2
        assert any(delay > 0.020 * 2**n for n, delay in enumerate(delays))


class TestOtherwise:
    """All four variables are obeyed."""

    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {
            "RETRY_MAX_ATTEMPTS": "4",
            "RETRY_BACKOFF_BASE_MS": "5",
            "RETRY_BACKOFF_MULTIPLIER": "3",
            "RETRY_JITTER_PERCENT": "0",
        }

    async def test_attempts_and_delays_are_as_the_variables_say(self, rig: Rig) -> None:
        rig.fault(status=503)
        await rig.report()

        await rig.work()
        letter = await rig.until_letter(State.PENDING)

        assert letter.head.attempts == 4
        assert [one.delay for one in retries(rig)] == [0.005, 0.015, 0.045]


def test_without_variables_there_are_five_attempts() -> None:
    assert profile({}).policy.max_attempts == 5


def test_without_variables_the_first_delay_is_a_second() -> None:
    assert profile({}).policy.backoff.delay(1, 0.0) == 1.0


def test_without_variables_each_delay_is_twice_the_one_before() -> None:
    backoff = profile({}).policy.backoff

    assert [backoff.delay(n, 0.0) for n in range(1, 5)] == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.0), (0.5, 0.1), (1.0, 0.2)])
def test_without_variables_jitter_adds_up_to_a_fifth_of_the_delay(
    draw: float, share: float
) -> None:
    backoff = profile({}).policy.backoff

    for attempt in range(1, 5):
        plain = 2.0 ** (attempt - 1)
        assert backoff.delay(attempt, draw) == pytest.approx(plain * (1 + share))


VARIABLES = {
    "RETRY_MAX_ATTEMPTS": ("9", "max_attempts 9"),
    "RETRY_BACKOFF_BASE_MS": ("250", "base 0.25"),
    "RETRY_BACKOFF_MULTIPLIER": ("3", "factor 3.0"),
    "RETRY_JITTER_PERCENT": ("10", "jitter 0.1"),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_sets_its_own_value(name: str) -> None:
    value, setting = VARIABLES[name]
    policy = profile({name: value}).policy
    usual = profile({}).policy
    assert isinstance(policy.backoff, Exponential)
    assert isinstance(usual.backoff, Exponential)

    def told(one: DLQPolicy, backoff: Exponential) -> set[str]:
        base, factor = f"base {backoff.base:g}", f"factor {backoff.factor:.1f}"
        return {f"max_attempts {one.max_attempts}", base, factor, f"jitter {backoff.jitter:g}"}

    changed = told(policy, policy.backoff) - told(usual, usual.backoff)
    assert changed == {setting}


async def test_an_event_that_recovers_is_delivered_and_has_no_letter(rig: Rig) -> None:
    rig.fault(status=503, times=2)
    await rig.report()

    await rig.work()
    await rig.until("processed")

    assert [(one.attempt, one.status) for one in rig.stand.seen] == [(1, 503), (2, 503), (3, 200)]
    assert await rig.letters() == []


@pytest.mark.parametrize("code", TRANSIENT)
async def test_transient_codes_are_tried_to_the_end(rig: Rig, code: str) -> None:
    rig.fault(status=500, code=code)
    await rig.report()

    await rig.work()
    letter = await rig.until_letter(State.PENDING)

    assert len(rig.stand.seen) == 3
    assert letter.head.trouble is Trouble.TRANSIENT
    assert letter.head.code in {code, "TIMEOUT"}


class TestNobodyListens:
    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"DOWNSTREAM_URL": f"http://127.0.0.1:{free_port()}/events"}

    async def test_a_refused_connection_is_transient(self, rig: Rig) -> None:
        await rig.report()

        await rig.work()
        letter = await rig.until_letter(State.PENDING)

        assert letter.head.trouble is Trouble.TRANSIENT
        assert letter.head.code == "ECONNREFUSED"
        assert letter.head.attempts == 3


class TestTooSlow:
    @pytest.fixture
    def environ(self) -> dict[str, str]:
        return {"DOWNSTREAM_TIMEOUT_MS": "500"}

    async def test_no_answer_in_time_is_transient(self, rig: Rig) -> None:
        rig.fault(delay_ms=5000, times=2)
        await rig.report()

        await rig.work()
        await rig.until("processed")

        assert [one.attempt for one in rig.stand.seen] == [1, 2, 3]
        assert {one.failure.code for one in retries(rig)} == {"DOWNSTREAM_TIMEOUT"}


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (422, "validation failed: status is unknown", "VALIDATION"),
        (400, "malformed address", "MALFORMED"),
        (400, "invalid payload: no shipment", "INVALID_PAYLOAD"),
    ],
)
async def test_permanent_errors_die_at_once(rig: Rig, status: int, message: str, code: str) -> None:
    rig.fault(status=status, message=message)
    await rig.report()

    await rig.work()
    letter = await rig.until_letter(State.PENDING)

    assert len(rig.stand.seen) == 1
    assert retries(rig) == []
    assert letter.head.trouble is Trouble.PERMANENT
    assert (letter.head.code, letter.head.reason) == (code, Reason.FATAL_ERROR)


async def test_an_error_nobody_knows_is_tried_to_the_end(rig: Rig) -> None:
    rig.fault(status=302, message="gone fishing")
    await rig.report()

    await rig.work()
    letter = await rig.until_letter(State.PENDING)

    assert len(rig.stand.seen) == 3
    assert letter.head.trouble is Trouble.UNKNOWN
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize("status", [401, 403, 404, 501])
async def test_an_expired_token_or_a_missing_route_is_tried_to_the_end(
    rig: Rig, status: int
) -> None:
    rig.fault(status=status, message="session invalid")
    await rig.report()

    await rig.work()
    letter = await rig.until_letter(State.PENDING)

    assert len(rig.stand.seen) == 3
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert letter.head.code == f"HTTP_{status}"


async def test_a_text_with_invalid_in_it_is_not_an_invalid_payload(rig: Rig) -> None:
    rig.fault(status=503, message="session invalid", times=2)
    await rig.report()

    await rig.work()
    await rig.until("processed")

    assert [one.status for one in rig.stand.seen] == [503, 503, 200]


async def test_an_outage_does_not_stop_the_worker(rig: Rig) -> None:
    rig.fault(status=503)
    for number in range(12):
        await rig.report(f"evt_{number}")

    await rig.work()

    async def are_dead() -> bool:
        return len(await rig.letters()) == 12

    await eventually(are_dead, within=30)
    assert len(rig.stand.seen) == 36
    assert not [one for one in rig.events if isinstance(one, BrakeOpened)]


async def test_the_other_side_may_ask_for_patience(rig: Rig) -> None:
    rig.fault(status=429, retry_after="0.5", times=1)
    await rig.report()

    await rig.work()
    await rig.until("processed")

    (retried,) = retries(rig)
    assert retried.delay >= 0.5


@pytest.mark.parametrize(
    "missing", ["eventId", "idempotencyKey", "eventType", "traceId", "payload"]
)
async def test_a_queued_event_without_a_required_field_dies_untried(rig: Rig, missing: str) -> None:
    event = {name: value for name, value in LEAST.items() if name != missing}
    await rig.office.send("courier-events-main", event)

    await rig.work()
    letter = await rig.until_letter(State.PENDING)

    assert rig.stand.seen == []
    assert letter.head.attempts == 1
    assert letter.head.reason is Reason.UNDECODABLE or letter.head.code == "MALFORMED"
    assert missing in letter.head.error_text


async def test_a_queued_event_needs_no_more_than_the_required_fields(rig: Rig) -> None:
    await rig.office.send("courier-events-main", LEAST)

    await rig.work()
    await eventually(lambda: rig.stand.seen, within=10)

    (seen,) = rig.stand.seen
    assert (seen.event_id, seen.key, seen.trace_id) == ("evt_9", "a:9", "t")
    assert seen.attempt == 1
