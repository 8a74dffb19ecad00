"""The rules of sending letters back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import MOVES, State
from deadletter.core.replay_rules import READY, came_back, check_change, check_news, is_out, take

_states = st.sampled_from(State)
_numbers = st.integers(0, 9)


@given(state=_states, replays=_numbers, cap=_numbers)
def test_a_letter_goes_out_only_if_it_may_and_the_cap_allows(
    state: State, replays: int, cap: int
) -> None:
    outcome, after = take(state, replays, cap)

    goes = State.REPLAYING in MOVES[state] and replays < cap
    assert (outcome is Outcome.SENDING) == goes
    assert goes == (state in READY and replays < cap)
    assert (after is State.REPLAYING) == (goes or state is State.REPLAYING)
    assert after is state or after in MOVES[state]


@given(state=_states, replays=_numbers, cap=_numbers)
def test_past_the_cap_only_people_have_a_say(state: State, replays: int, cap: int) -> None:
    _, after = take(state, replays, cap)

    if replays >= cap and state in {State.PENDING, State.REVIEWED}:
        assert after is State.QUARANTINED


@given(replays=_numbers, cap=_numbers)
def test_a_failed_copy_brings_its_letter_back(replays: int, cap: int) -> None:
    expected = State.QUARANTINED if replays >= cap else State.PENDING

    assert came_back(replays, cap) is expected
    assert came_back(replays, None) is State.PENDING


@given(state=_states, replays=_numbers, generation=_numbers)
def test_only_the_latest_copy_of_a_waiting_letter_is_out(
    state: State, replays: int, generation: int
) -> None:
    expected = state is State.REPLAYING and generation == replays

    assert is_out(state, replays, generation) == expected


@pytest.mark.parametrize("outcome", Outcome)
def test_only_outcomes_and_the_end_of_a_wait_are_news(outcome: Outcome) -> None:
    news = {"confirmed", "presumed", "failed", "unconfirmed", "refused"}
    if outcome in news:
        check_news([outcome])
        return

    with pytest.raises(ConfigError, match=f"{outcome} is not an outcome to settle"):
        check_news([Outcome.FAILED, outcome])


@given(old=st.sampled_from(CampaignState), new=st.sampled_from(CampaignState))
def test_a_campaign_that_has_ended_stays_ended(old: CampaignState, new: CampaignState) -> None:
    is_over = old in {CampaignState.DONE, CampaignState.CANCELLED}
    if not is_over or new is old:
        check_change("c", old, new)
        return

    with pytest.raises(Conflict, match=f"c is {old}"):
        check_change("c", old, new)
