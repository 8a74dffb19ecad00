"""P4: an outage is not a flood, a bad deploy is not poison; and it never sticks."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.brake import (
    MANY,
    RELEASE,
    AttemptResult,
    Brake,
    BrakeKind,
    BrakePolicy,
    judge,
    may_fetch,
    on_probe,
    on_result,
    on_time,
    released,
)
from deadletter.core.errors import ConfigError
from deadletter.core.failure import Trouble

OUTAGE, SYSTEMIC = BrakeKind.OUTAGE, BrakeKind.SYSTEMIC
BY_ITSELF = [Trouble.MALFORMED, Trouble.EXPIRED, Trouble.LOOP, Trouble.WORKER_LOST]
IDS = [f"m-{n}" for n in range(200)]

policies = st.builds(
    BrakePolicy,
    threshold=st.integers(1, 12),
    distinct=st.integers(1, 4),
    share=st.floats(0.5, 1),
    probe_after=st.floats(0.01, 5),
    cap=st.floats(5, 60),
    jitter=st.floats(0, 1),
)
draws = st.floats(0, 1, exclude_max=True)
results = st.builds(
    AttemptResult,
    st.sampled_from(IDS[:30]),
    st.sampled_from([None, *Trouble, *[Trouble.TRANSIENT, Trouble.UNKNOWN] * 6]),
    st.sampled_from(["a", "b"]),
    st.booleans(),
    st.booleans(),
)
stories = st.lists(results, max_size=60)


def good(*ids: str) -> list[AttemptResult]:
    return [AttemptResult(name) for name in ids]


def down(*ids: str, is_last: bool = False) -> list[AttemptResult]:
    """Attempts that failed since something could not be reached."""
    return [AttemptResult(name, Trouble.TRANSIENT, "refused", True, is_last) for name in ids]


def bug(
    *ids: str, cause: str = "KeyError", trouble: Trouble = Trouble.UNKNOWN, is_first: bool = True
) -> list[AttemptResult]:
    """Attempts that failed in the handler."""
    return [AttemptResult(name, trouble, cause, is_first) for name in ids]


def after(
    brake: Brake, story: Sequence[AttemptResult], *, now: float = 0.0, draw: float = 0.0
) -> Brake:
    for one in story:
        brake = on_result(brake, one, now, draw)
    return brake


CASES: dict[str, tuple[list[AttemptResult], BrakeKind | None]] = {
    # an outage: transient failures
    "ten refused connections of three messages": (down(*"abcabcabca"), OUTAGE),
    "nine of them": (down(*"abcabcabc"), None),
    "ten, and one that got through": (down(*"abcab") + good("x") + down(*"cabca"), OUTAGE),
    "ten, and two that got through": (down(*"abcab") + good("x", "y") + down(*"cabca"), None),
    "one poisonous message, however often": (down(*["poison"] * 100), None),
    "ten of two messages, with attempts left": (down(*"ababababab"), None),
    # ...of a quiet queue
    "two messages, the first about to be buried": (down(*"abab") + down("a", is_last=True), OUTAGE),
    "one message about to be buried": (down(*"aaaa") + down("a", is_last=True), None),
    "two about to be buried, while others get through": (
        down(*"abab") + good("c") + down("a", is_last=True),
        None,
    ),
    # a broken handler: one cause, nearly everything
    "a KeyError for ten messages": (bug(*IDS[:10]), SYSTEMIC),
    "a KeyError for nine": (bug(*IDS[:9]), None),
    "a KeyError for ten, one got through": (bug(*IDS[:9]) + good("x") + bug(IDS[9]), SYSTEMIC),
    "a KeyError for ten, two got through": (bug(*IDS[:9]) + good("x", "y") + bug(IDS[9]), None),
    "401 for everything": (bug(*IDS[:10], cause="HTTP_401", trouble=Trouble.PERMANENT), SYSTEMIC),
    "two causes, half of the messages each": (
        bug(*IDS[:10]) + bug(*IDS[20:30], cause="TypeError"),
        SYSTEMIC,  # it opened at the tenth, before the other cause came
    ),
    "two causes in turn": (
        [
            one
            for a, b in zip(IDS[:40], IDS[40:80], strict=True)
            for one in (*bug(a), *bug(b, cause="TypeError"))
        ],
        None,
    ),
    # poison: messages that are at fault themselves
    "three poisonous messages, again and again": (
        bug(*IDS[:3]) + bug(*IDS[:3] * 20, is_first=False),
        None,
    ),
    "a quarter of many messages": (
        [one for n in range(0, 160, 4) for one in bug(IDS[n]) + good(*IDS[n + 1 : n + 4])],
        None,
    ),
    "forty poisonous ones among good ones, all tried again when these are done": (
        [one for n in range(0, 80, 2) for one in bug(IDS[n]) + good(IDS[n + 1])]
        + bug(*IDS[0:80:2], is_first=False),
        None,
    ),
    "a hundred bodies that cannot be read": (
        [AttemptResult(name, Trouble.MALFORMED, "INVALID") for name in IDS[:100]],
        None,
    ),
    "a hundred that came too late": (
        [AttemptResult(name, Trouble.EXPIRED, "EXPIRED") for name in IDS[:100]],
        None,
    ),
    "replays that fail again": (bug(*IDS[:100], is_first=False), None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_of_cases(name: str) -> None:
    story, kind = CASES[name]

    brake = after(Brake(), story)

    assert (brake.finding.kind if brake.finding else None) == kind


def test_a_broken_handler_is_named_with_its_cause_and_share() -> None:
    finding = judge(BrakePolicy(), bug(*IDS[:10]) + good("x"))

    assert finding is not None
    assert (finding.cause, finding.failed, finding.of) == ("KeyError", 10, 11)


@given(policy=policies, story=stories)
def test_the_brake_opens_only_after_enough_failures_of_enough_messages(
    policy: BrakePolicy, story: list[AttemptResult]
) -> None:
    finding = after(Brake(policy), story).finding

    if finding is not None:
        failed = [one for one in story if one.trouble is not None]
        assert len({one.message_id for one in failed}) >= min(2, policy.distinct)
        assert finding.failed >= min(2, policy.threshold)
        assert finding.failed >= policy.share * finding.of
        assert any(one.cause == finding.cause for one in failed)


@given(
    policy=policies,
    story=st.lists(st.builds(AttemptResult, st.sampled_from(IDS), st.sampled_from(BY_ITSELF))),
)
def test_messages_that_are_at_fault_themselves_never_open_it(
    policy: BrakePolicy, story: list[AttemptResult]
) -> None:
    assert after(Brake(policy), story) == Brake(policy)


@given(policy=policies, story=stories)
def test_with_half_of_all_messages_handled_a_handler_is_not_broken(
    policy: BrakePolicy, story: list[AttemptResult]
) -> None:
    bugs = [one for one in story if one.trouble in (Trouble.UNKNOWN, Trouble.PERMANENT)]
    mixed = [two for n, one in enumerate(bugs) for two in (*good(f"g-{n}", f"h-{n}"), one)]
    strict = BrakePolicy(threshold=max(2, policy.threshold), share=policy.share)

    assert not after(Brake(strict), good("a") + mixed).is_open


@given(policy=policies, now=st.floats(0, 1e6), draw=draws)
def test_while_open_nothing_is_fetched_until_a_probe_is_due(
    policy: BrakePolicy, now: float, draw: float
) -> None:
    brake = after(Brake(policy), down(*IDS[:12]), now=now, draw=draw)

    assert brake.opened_at == now
    assert may_fetch(brake, now) == 0
    assert may_fetch(brake, brake.probe_at - 0.001) == 0
    assert may_fetch(brake, brake.probe_at) == 1


@given(policy=policies, story=stories, now=st.floats(0, 1e6), bad=st.sampled_from([down, bug]))
def test_the_brake_always_probes_again_within_its_cap(
    policy: BrakePolicy, story: list[AttemptResult], now: float, bad: object
) -> None:
    opened = after(Brake(policy), (down if bad is down else bug)(*IDS[100:112]))
    brake = after(opened, story, now=now)
    brake = on_probe(brake, now, 0.99) if brake.is_open else brake

    latest = now + policy.cap * (1 + policy.jitter) + 0.001
    assert may_fetch(brake, latest) in (1, MANY)


@given(policy=policies, failed_probes=st.integers(0, 20), draw=draws)
def test_the_first_success_ends_an_outage(
    policy: BrakePolicy, failed_probes: int, draw: float
) -> None:
    brake = after(Brake(policy), down(*IDS[:12]))
    for _ in range(failed_probes):
        brake = on_probe(brake, brake.probe_at, draw)
        brake = after(brake, down("p"), now=brake.probe_at, draw=draw)
    assert brake.is_open

    assert after(brake, good("p")) == Brake(policy)


@given(policy=policies, failed_probes=st.integers(0, 30), draw=draws)
def test_a_few_successes_end_what_a_broken_handler_began(
    policy: BrakePolicy, failed_probes: int, draw: float
) -> None:
    brake = after(Brake(policy), bug(*IDS[:12]))
    for n in range(failed_probes):
        brake = on_probe(brake, brake.probe_at, draw)
        brake = after(brake, bug(IDS[n]), now=brake.probe_at, draw=draw)
    assert brake.is_open

    brake = after(brake, good(*IDS[100 : 100 + policy.memory]))

    assert not brake.is_open


def test_one_success_in_a_quiet_queue_ends_it_when_nothing_fails_for_a_while() -> None:
    brake = after(Brake(), bug(*IDS[:10]))
    brake = after(brake, good("x"), now=100.0)

    assert brake.is_open
    assert may_fetch(brake, 100.0) == 1
    assert not on_time(brake, 130.0).is_open


def test_probes_are_one_two_four_seconds_apart_and_at_most_thirty() -> None:
    brake = after(Brake(BrakePolicy(jitter=0.0)), down(*IDS[:12]))
    pauses, last = [], brake.opened_at
    for _ in range(8):
        now = brake.probe_at
        pauses.append(now - last)
        brake = on_probe(brake, now, 0.0)
        brake = after(brake, down("p"), now=now)
        last = now

    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_only_one_probe_is_under_way_at_a_time() -> None:
    brake = after(Brake(BrakePolicy(jitter=0.0)), down(*IDS[:12]))
    due = brake.probe_at

    brake = on_probe(brake, due, 0.0)

    assert may_fetch(brake, due) == 0
    assert may_fetch(brake, due + 1.0) == 1  # ...unless it got lost


def test_stragglers_of_before_do_not_make_it_wait_longer() -> None:
    brake = after(Brake(), down(*IDS[:12]))

    late = after(brake, down(*IDS[20:30]))

    assert (late.probe_at, late.probes) == (brake.probe_at, brake.probes)


@pytest.mark.parametrize("trouble", [Trouble.PERMANENT, Trouble.LOGICAL])
def test_an_answer_if_only_a_no_ends_an_outage(trouble: Trouble) -> None:
    brake = after(Brake(), down(*IDS[:12]))

    assert not after(brake, [AttemptResult("m", trouble, "no")], now=1.0).is_open


SPARED = {
    OUTAGE: {Trouble.TRANSIENT, Trouble.UNKNOWN},
    SYSTEMIC: {Trouble.TRANSIENT, Trouble.UNKNOWN, Trouble.PERMANENT},
}


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.parametrize("kind", BrakeKind)
def test_an_open_brake_spares_failures_of_its_kind(kind: BrakeKind, trouble: Trouble) -> None:
    brake = after(Brake(), (down if kind is OUTAGE else bug)(*IDS[:12]))
    result = AttemptResult("m", trouble, "KeyError")

    assert not Brake().spares(result)
    assert brake.spares(result) == (trouble in SPARED[kind])


def test_a_permanent_failure_of_another_cause_is_a_verdict_on_its_message() -> None:
    brake = after(Brake(), bug(*IDS[:12]))

    assert not brake.spares(AttemptResult("m", Trouble.PERMANENT, "HTTP_404"))


@pytest.mark.parametrize("bad", [down, bug])
def test_a_cause_that_was_released_passes_for_a_day(bad: object) -> None:
    story = (down if bad is down else bug)(*IDS[:12])
    brake = released(after(Brake(), story), 5.0)

    assert not brake.is_open
    assert not after(brake, story, now=10.0).is_open
    assert after(brake, story, now=5.0 + RELEASE).is_open


def test_another_cause_than_the_released_one_opens_it() -> None:
    brake = released(after(Brake(), bug(*IDS[:12])), 0.0)

    assert after(brake, bug(*IDS[:12], cause="TypeError"), now=1.0).is_open
    assert after(brake, down(*IDS[:12]), now=1.0).is_open


def test_a_broken_handler_is_waited_for_as_long_as_the_policy_says() -> None:
    brake = after(Brake(BrakePolicy(hold=3600.0)), bug(*IDS[:12]))

    assert on_time(brake, 3599.0).is_open
    later = on_time(brake, 3600.0)
    assert not later.is_open
    assert not after(later, bug(*IDS[20:32]), now=3601.0).is_open


def test_an_outage_is_waited_for_however_long_it_lasts() -> None:
    brake = after(Brake(BrakePolicy(hold=3600.0)), down(*IDS[:12]))

    assert on_time(brake, 1e9).is_open


def test_only_outages_open_it_where_a_policy_says_so() -> None:
    policy = BrakePolicy(systemic=False)

    assert not after(Brake(policy), bug(*IDS)).is_open
    assert after(Brake(policy), down(*IDS)).is_open


@pytest.mark.parametrize(
    "bad",
    [
        {"threshold": 0},
        {"distinct": 0},
        {"share": 0.0},
        {"share": 1.1},
        {"hold": 0.0},
        {"probe_after": 0.0},
        {"probe_after": -1.0},
        {"cap": 0.0},
        {"jitter": 2.0},
    ],
)
def test_a_brake_that_makes_no_sense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="use "):
        BrakePolicy(**bad)  # type: ignore[arg-type]
