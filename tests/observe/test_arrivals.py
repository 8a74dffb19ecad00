"""What arrived between two looks, whatever was taken away in between."""

from datetime import timedelta

import pytest

from deadletter.core.letter import Group, State
from deadletter.observe import observers as arrivals
from deadletter.observe.observers import Arrivals
from office.making import NOW


def group(name: str = "f1", total: int = 1, *, age: float = 0) -> Group:
    return Group(
        fingerprint=name,
        source="orders",
        error_type="ValueError",
        text="no",
        first_seen=NOW - timedelta(seconds=age),
        last_seen=NOW,
        counts={State.PENDING: total},
        total=total,
    )


def counted(seen: Arrivals, *groups: Group) -> dict[str, int]:
    return {one.group.fingerprint: one.count for one in seen.look(groups)}


def test_counting_of_arrivals_begins_at_the_existing_letters() -> None:
    seen = Arrivals(NOW)

    assert counted(seen, group(total=7, age=60)) == {}
    assert counted(seen, group(total=9, age=60)) == {"f1": 2}
    assert counted(seen, group(total=9, age=60)) == {}


def test_of_a_group_that_is_new_everything_has_arrived() -> None:
    seen = Arrivals(NOW)

    [one] = seen.look([group(total=5)])
    [more] = seen.look([group(total=6)])

    assert (one.count, one.is_new) == (5, True)
    assert (more.count, more.is_new) == (1, False)


def test_a_group_that_was_not_among_the_latest_for_a_while_is_not_forgotten() -> None:
    seen = Arrivals(NOW)
    counted(seen, group(total=5, age=60))
    counted(seen, group("f2", 1, age=60))
    counted(seen)

    assert counted(seen, group(total=8, age=60)) == {"f1": 3}


def test_memory_is_bounded_and_keeps_those_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "KEPT", 3)
    seen = Arrivals(NOW)
    for name in "abcd":
        counted(seen, group(name, 1, age=60))

    assert len(seen._totals) == 3
    assert counted(seen, group("d", 2, age=60)) == {"d": 1}
    assert counted(seen, group("a", 2, age=60)) == {}
