"""How many letters may go, and when it is enough."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.campaign import (
    AT_ONCE,
    ENOUGH,
    Care,
    Halt,
    Send,
    Wait,
    checked,
    next_step,
    read,
    written,
)
from deadletter.core.errors import ConfigError

CANARY = Care(canary=10)
RAMP = Care(ramp=True)


@pytest.mark.parametrize(
    ("care", "sent", "handled", "failed", "step"),
    [
        (AT_ONCE, 0, 0, 0, Send()),
        (AT_ONCE, 500, 0, 0, Send()),
        (AT_ONCE, 500, 9, 10, Send()),  # too few to say anything
        (CANARY, 0, 0, 0, Send(10)),
        (CANARY, 4, 1, 0, Send(6)),
        (CANARY, 10, 3, 0, Wait(7)),
        (CANARY, 10, 9, 1, Send()),
        (RAMP, 0, 0, 0, Send(1)),
        (RAMP, 1, 0, 0, Wait(1)),
        (RAMP, 1, 1, 0, Send(9)),
        (RAMP, 10, 10, 0, Send(90)),
        (RAMP, 100, 99, 0, Wait(1)),
        (RAMP, 100, 95, 5, Send(900)),
        (Care(canary=5, ramp=True), 5, 5, 0, Send(45)),
        (Care(canary=4, halt_on=0.5), 4, 2, 2, Send()),
        (Care(canary=4, halt_on=1), 4, 0, 4, Send()),
        (Care(halt_on=1), 500, 0, 500, Send()),
        (CANARY, 1, 0, 1, Send(9)),  # one of ten may
        (CANARY, 11, 9, 2, Send()),  # past the canary, and too few since
        (Care(ramp=True, halt_on=0.2), 2, 1, 1, Send(8)),
        (Care(canary=100, halt_on=0.29), 100, 71, 29, Send()),  # not a bit more
        (Care(halt_on=0.2), 0, 0, 0, Send(20)),  # said, so it has to hold
        (Care(halt_on=0.2), 20, 20, 0, Send(180)),
        (Care(canary=20, halt_on=0.2), 20, 20, 0, Send()),
    ],
)
def test_the_next_step(care: Care, sent: int, handled: int, failed: int, step: object) -> None:
    assert next_step(care, sent, handled, failed) == step


@pytest.mark.parametrize(
    ("care", "handled", "failed", "words"),
    [
        (CANARY, 0, 2, "2 of the first 10 failed again, where 10% may"),
        (Care(canary=10, halt_on=0), 9, 1, "1 of 10 failed again, where 0% may"),
        (RAMP, 0, 1, "1 of 1 failed"),
        (RAMP, 20, 3, "3 of 23 failed again"),  # of 100, and yet enough
        (Care(canary=100, halt_on=0.004), 99, 1, "1 of 100 .*, where 0.4% may"),
        (AT_ONCE, 9, 11, "11 of 20 failed again, where 50% may"),
    ],
)
def test_too_many_failures_end_it(care: Care, handled: int, failed: int, words: str) -> None:
    step = next_step(care, handled + failed, handled, failed)

    assert isinstance(step, Halt)
    assert re.search(words, step.reason)


cares = st.builds(
    Care,
    canary=st.none() | st.integers(1, 50),
    ramp=st.booleans(),
    halt_on=st.none() | st.floats(0, 1),
)


@given(cares, st.integers(1, 300), st.data())
def test_every_replay_ends_with_all_sent_or_too_many_failures(
    care: Care, letters: int, data: st.DataObject
) -> None:
    sent = handled = failed = 0
    while sent < letters:
        step = next_step(care, sent, handled, failed)
        settled = handled + failed
        match step:
            case Send(most):
                assert most is None or most > 0
                sent = min(letters, sent + (most or 7))
            case Wait(outcomes):
                assert 0 < outcomes <= sent - settled
                if data.draw(st.booleans()):
                    handled += 1
                else:
                    failed += 1
            case Halt():
                assert failed > 0
                assert care.share < 1
                return
        bound = care.bound(sent, handled + failed)
        assert bound is None or sent <= max(bound, settled * 10)
    assert settled < ENOUGH or failed <= care.share * settled + 1


@pytest.mark.parametrize("care", [Care(canary=0), Care(halt_on=1.5), Care(halt_on=-0.1)])
def test_care_that_makes_no_sense_is_refused(care: Care) -> None:
    with pytest.raises(ConfigError, match="invalid precautions"):
        checked(care)


def test_unknown_safety_settings_of_later_versions_are_ignored() -> None:
    assert read('{"canary": 3, "mood": "good"}') == Care(canary=3)


@given(cares)
def test_stores_keep_it(care: Care) -> None:
    assert read(written(care)) == care


def test_replays_sent_at_once_store_no_safety_settings() -> None:
    assert written(AT_ONCE) is None


@given(st.integers(ENOUGH, 500), st.data())
def test_nothing_ends_while_no_more_fail_than_may(settled: int, data: st.DataObject) -> None:
    share = data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    failed = data.draw(st.integers(0, int(share * settled)))

    step = next_step(Care(halt_on=share), settled, settled - failed, failed)

    assert isinstance(step, Send)
