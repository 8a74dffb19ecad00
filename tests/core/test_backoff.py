"""R1.32, R3.37 and R4.33-36: delays follow their formulas, exactly and for ever."""

from math import inf, isfinite, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.backoff import Backoff, Exponential, Fixed, Linear, NoBackoff
from deadletter.core.errors import ConfigError

draws = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10_000)
seconds = st.floats(0, 1e6)
factors = st.floats(1, 1e12)
backoffs: st.SearchStrategy[Backoff] = st.one_of(
    st.builds(NoBackoff),
    st.builds(Fixed, seconds),
    st.builds(Linear, seconds, seconds),
    st.builds(Exponential, seconds, factors, seconds, st.floats(0, 1)),
)


@given(attempt=attempts, draw=draws)
def test_no_backoff_never_waits(attempt: int, draw: float) -> None:
    assert NoBackoff().delay(attempt, draw) == 0


@given(wait=seconds, attempt=attempts, draw=draws)
def test_a_fixed_delay_is_always_the_same(wait: float, attempt: int, draw: float) -> None:
    assert Fixed(wait).delay(attempt, draw) == wait


@given(step=st.floats(0, 100), attempt=st.integers(1, 100), draw=draws)
def test_linear_waits_step_times_attempt_r1_32(step: float, attempt: int, draw: float) -> None:
    assert Linear(step, cap=1e6).delay(attempt, draw) == step * attempt


@given(attempt=attempts, draw=draws)
def test_linear_of_a_minute_stops_at_a_quarter_hour_r3_37(attempt: int, draw: float) -> None:
    assert Linear(60.0, cap=900.0).delay(attempt, draw) == min(60 * attempt, 900)


@pytest.mark.parametrize(("attempt", "least"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0)])
@given(draw=draws)
def test_exponential_doubles_and_adds_up_to_a_fifth_r4_36(
    attempt: int, least: float, draw: float
) -> None:
    delay = Exponential(1.0, factor=2.0, jitter=0.2).delay(attempt, draw)

    assert delay == pytest.approx(least + least * 0.2 * draw)
    assert least <= delay <= least * 1.2


@given(base=st.floats(0.001, 10), factor=st.floats(1, 3), attempt=st.integers(1, 30))
def test_without_jitter_exponential_is_base_times_power_r4_33_34(
    base: float, factor: float, attempt: int
) -> None:
    delay = Exponential(base, factor, cap=1e300, jitter=0.0).delay(attempt, 0.5)

    assert delay == pytest.approx(base * factor ** (attempt - 1))


def test_a_slow_growth_is_not_cut_short_before_its_cap() -> None:
    slow = Exponential(1.0, factor=1.1, cap=900.0, jitter=0.0)

    assert slow.delay(71, 0.0) == pytest.approx(1.1**70)
    assert slow.delay(10_000, 0.0) == 900.0


@given(backoff=backoffs, attempt=attempts, draw=draws)
def test_every_delay_is_a_finite_time_to_wait(backoff: Backoff, attempt: int, draw: float) -> None:
    delay = backoff.delay(attempt, draw)

    assert isfinite(delay)
    assert delay >= 0


@given(backoff=backoffs, attempt=attempts, draw=draws)
def test_patience_never_shrinks(backoff: Backoff, attempt: int, draw: float) -> None:
    assert backoff.delay(attempt + 1, draw) >= backoff.delay(attempt, draw)


@given(base=seconds, cap=seconds, factor=factors, jitter=st.floats(0, 1), attempt=attempts)
def test_the_cap_holds_but_for_the_jitter_on_top(
    base: float, cap: float, factor: float, jitter: float, attempt: int
) -> None:
    backoff = Exponential(base, factor, cap, jitter)

    assert backoff.delay(attempt, 0.0) <= cap
    assert backoff.delay(attempt, 0.999) <= cap * (1 + jitter)


@pytest.mark.parametrize("bad", [-1.0, -0.001, nan, inf, -inf])
@pytest.mark.parametrize(
    "make",
    [
        Fixed,
        Linear,
        lambda value: Linear(1.0, cap=value),
        Exponential,
        lambda value: Exponential(cap=value),
        lambda value: Exponential(factor=value),
        lambda value: Exponential(jitter=value),
    ],
)
def test_invalid_delays_are_rejected(make, bad: float) -> None:
    with pytest.raises(ConfigError, match=r"use (a number|1 or more)"):
        make(bad)


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.999])
def test_a_shrinking_factor_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="would not grow"):
        Exponential(factor=factor)


def test_more_jitter_than_delay_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Exponential(jitter=20)


@given(backoff=backoffs)
def test_a_backoff_survives_being_written_down(backoff: Backoff) -> None:
    text = msgspec.json.encode(backoff)

    assert msgspec.json.decode(text, type=Backoff) == backoff
