"""P4: an outage is not a flood. The brake opens for good reason, and never sticks."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from deadletter.core.brake import (
    MANY,
    Brake,
    BrakePolicy,
    may_fetch,
    on_failure,
    on_probe,
    on_success,
)
from deadletter.core.errors import ConfigError
from deadletter.core.failure import Trouble

ANSWERS = [Trouble.PERMANENT, Trouble.LOGICAL]
SILENT = [
    Trouble.UNKNOWN,
    Trouble.MALFORMED,
    Trouble.LOOP,
    Trouble.EXPIRED,
    Trouble.WORKER_LOST,
]

policies = st.builds(
    BrakePolicy,
    threshold=st.integers(1, 12),
    distinct=st.integers(1, 4),
    probe_after=st.floats(0.01, 5),
    cap=st.floats(5, 60),
    jitter=st.floats(0, 1),
)
draws = st.floats(0, 1, exclude_max=True)


class Happening(Struct, frozen=True):
    """A message was handled (no trouble) or failed."""

    trouble: Trouble | None
    message: str
    draw: float = 0.0


happenings = st.lists(
    st.builds(
        Happening,
        st.sampled_from([None, *Trouble, *[Trouble.TRANSIENT] * 12]),
        st.sampled_from("abcde"),
        draws,
    ),
    max_size=60,
)


def after(brake: Brake, story: Sequence[Happening], *, now: float = 0.0) -> Brake:
    for h in story:
        if h.trouble is None:
            brake = on_success(brake)
        else:
            brake = on_failure(brake, h.trouble, h.message, now, h.draw)
    return brake


def outage(policy: BrakePolicy, *, now: float = 0.0, draw: float = 0.0) -> Brake:
    ids = "abcdefghijkl"
    story = [Happening(Trouble.TRANSIENT, ids[n % 12], draw) for n in range(12)]
    return after(Brake(policy), story, now=now)


def run_of_transients(story: Sequence[Happening]) -> list[str]:
    """The messages that failed since something last answered."""
    run: list[str] = []
    for h in story:
        if h.trouble is None or h.trouble in ANSWERS:
            run.clear()
        elif h.trouble is Trouble.TRANSIENT:
            run.append(h.message)
    return run


@given(policy=policies, story=happenings)
def test_it_opens_exactly_after_enough_transient_failures_in_a_row(
    policy: BrakePolicy, story: list[Happening]
) -> None:
    run = run_of_transients(story)

    brake = after(Brake(policy), story)

    enough = len(run) >= policy.threshold and len(set(run)) >= policy.distinct
    assert brake.is_open == enough


def test_ten_failures_of_three_messages_open_it_by_default() -> None:
    nine = after(Brake(), [Happening(Trouble.TRANSIENT, c) for c in "abcabcabc"])

    assert not nine.is_open
    assert on_failure(nine, Trouble.TRANSIENT, "a", 0.0, 0.0).is_open


def test_one_poisonous_message_alone_never_opens_it() -> None:
    brake = after(Brake(), [Happening(Trouble.TRANSIENT, "poison")] * 1000)

    assert not brake.is_open


@given(policy=policies, now=st.floats(0, 1e6), draw=draws)
def test_while_open_nothing_is_fetched_until_a_probe_is_due(
    policy: BrakePolicy, now: float, draw: float
) -> None:
    brake = outage(policy, now=now, draw=draw)

    assert brake.opened_at == now
    assert may_fetch(brake, now) == 0
    assert may_fetch(brake, brake.probe_at - 0.001) == 0
    assert may_fetch(brake, brake.probe_at) == 1


@given(policy=policies, story=happenings, now=st.floats(0, 1e6))
def test_it_always_probes_again_within_its_cap(
    policy: BrakePolicy, story: list[Happening], now: float
) -> None:
    brake = after(outage(policy), story, now=now)
    brake = on_probe(brake, now, 0.99) if brake.is_open else brake

    latest = now + policy.cap * (1 + policy.jitter) + 0.001
    assert may_fetch(brake, latest) in (1, MANY)


@given(policy=policies, failed_probes=st.integers(0, 20), draw=draws)
def test_the_first_success_closes_it(
    policy: BrakePolicy, failed_probes: int, draw: float
) -> None:
    brake = outage(policy)
    for _ in range(failed_probes):
        brake = on_probe(brake, brake.probe_at, draw)
        brake = on_failure(brake, Trouble.TRANSIENT, "p", brake.probe_at, draw)
    assert brake.is_open

    brake = on_success(brake)

    assert brake == Brake(policy)
    assert may_fetch(brake, 0.0) == MANY


def test_probes_are_one_two_four_seconds_apart_and_at_most_thirty() -> None:
    brake = outage(BrakePolicy(jitter=0.0))
    pauses, last = [], brake.opened_at or 0.0
    for _ in range(8):
        now = brake.probe_at
        pauses.append(now - last)
        brake = on_probe(brake, now, 0.0)
        brake = on_failure(brake, Trouble.TRANSIENT, "p", now, 0.0)
        last = now

    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_only_one_probe_is_under_way_at_a_time() -> None:
    brake = outage(BrakePolicy(jitter=0.0))
    due = brake.probe_at

    brake = on_probe(brake, due, 0.0)

    assert may_fetch(brake, due) == 0
    assert may_fetch(brake, due + 1.0) == 1  # ...unless it got lost


def test_stragglers_of_before_do_not_make_it_wait_longer() -> None:
    brake = outage(BrakePolicy())

    late = after(brake, [Happening(Trouble.TRANSIENT, c) for c in "xyzxyzxyz"])

    assert late == brake


@pytest.mark.parametrize("trouble", ANSWERS)
def test_an_answer_if_only_a_no_closes_it(trouble: Trouble) -> None:
    brake = outage(BrakePolicy())

    assert not on_failure(brake, trouble, "m", 1.0, 0.0).is_open


@pytest.mark.parametrize("trouble", SILENT)
def test_trouble_that_says_nothing_about_downstream_leaves_it_alone(
    trouble: Trouble,
) -> None:
    opened = outage(BrakePolicy())
    counting = after(Brake(), [Happening(Trouble.TRANSIENT, c) for c in "abc"])

    assert on_failure(opened, trouble, "m", 1.0, 0.0) == opened
    assert on_failure(counting, trouble, "m", 1.0, 0.0) == counting


@pytest.mark.parametrize("trouble", Trouble)
def test_only_transient_failures_are_spared_and_only_while_open(
    trouble: Trouble,
) -> None:
    assert not Brake().spares(trouble)
    assert outage(BrakePolicy()).spares(trouble) == (trouble is Trouble.TRANSIENT)


@pytest.mark.parametrize(
    "bad",
    [
        {"threshold": 0},
        {"distinct": 0},
        {"probe_after": 0.0},
        {"probe_after": -1.0},
        {"cap": 0.0},
        {"jitter": 2.0},
    ],
)
def test_a_brake_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="use "):
        BrakePolicy(**bad)  # type: ignore[arg-type]
