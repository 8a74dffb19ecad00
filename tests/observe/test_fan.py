"""A failing observer hurts nobody."""

import logging

import pytest

from deadletter.core.events import Event, Received
from deadletter.observe.observers import fan_out

EVENT = Received(mailbox="orders", count=3)


def broken(event: Event) -> None:
    raise RuntimeError("disk full")


def test_every_observer_hears_of_every_event_in_order() -> None:
    heard: list[str] = []
    observe = fan_out(lambda _: heard.append("first"), lambda _: heard.append("second"))

    observe(EVENT)
    observe(EVENT)

    assert heard == ["first", "second", "first", "second"]


def test_an_observer_that_raises_does_not_keep_the_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[Event] = []
    observe = fan_out(broken, heard.append)

    observe(EVENT)

    assert heard == [EVENT]
    assert "observer broken fails" in caplog.text


def test_a_failing_observer_is_reported_once_not_per_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observe = fan_out(broken)

    for _ in range(1000):
        observe(EVENT)

    assert len(caplog.records) == 1


def test_a_log_that_fails_as_well_hurts_nobody_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(logging.getLogger("deadletter"), "error", fail)
    heard: list[Event] = []

    fan_out(broken, heard.append)(EVENT)

    assert heard == [EVENT]


def test_without_observers_nothing_happens() -> None:
    fan_out()(EVENT)
