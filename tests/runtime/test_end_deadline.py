"""A process that was asked to stop is gone in time, whatever state it is in."""

from threading import Event

from deadletter.runtime.loop_group import EndDeadline


def test_a_process_that_does_not_end_is_ended() -> None:
    ended = Event()

    with EndDeadline(ended.set) as deadline:
        deadline.set(0.05)

        assert ended.wait(5.0)


def test_a_process_that_ends_in_time_is_not_killed() -> None:
    ended = Event()

    with EndDeadline(ended.set) as deadline:
        deadline.set(0.2)

    assert not ended.wait(1.0)


def test_the_outermost_block_counts() -> None:
    ended = Event()

    with EndDeadline(ended.set) as deadline:
        with deadline:
            deadline.set(0.1)

        assert ended.wait(5.0)


def test_nothing_is_watched_outside_of_it() -> None:
    ended = Event()

    EndDeadline(ended.set).set(0.0)

    assert not ended.wait(0.4)
