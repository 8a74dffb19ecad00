from deadletter.office.replay_steps import Pace
from deadletter.testing.fakes import FakeClock


def test_without_a_rate_everything_goes_at_once() -> None:
    pace = Pace(None, FakeClock().monotonic)

    pace.spend(10_000)

    assert pace.wait() == 0.0
    assert pace.size(500) == 500


def test_a_rate_is_kept_to_the_letter() -> None:
    clock = FakeClock()
    pace = Pace(50.0, clock.monotonic)
    sent = 0

    while clock.monotonic() < 10.0:
        if wait := pace.wait():
            clock.advance(wait)
            continue
        sent += pace.size(500)
        pace.spend(pace.size(500))

    assert 500 <= sent <= 510


def test_a_slow_rate_sends_one_at_a_time() -> None:
    clock = FakeClock()
    pace = Pace(0.5, clock.monotonic)

    pace.spend(pace.size(500))

    assert pace.size(500) == 1
    assert pace.wait() == 2.0


def test_time_lost_is_not_caught_up_with_a_burst() -> None:
    clock = FakeClock()
    pace = Pace(10.0, clock.monotonic)
    pace.spend(1)

    clock.advance(60.0)
    sent = 0
    while pace.wait() == 0.0:
        pace.spend(1)
        sent += 1

    assert sent <= 2
