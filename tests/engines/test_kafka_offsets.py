"""What a partition's progress and its note promise, whatever happens in which order."""

from hypothesis import given
from hypothesis import strategies as st

from deadletter.brokers.kafka.partitions import WINDOW, Progress, read_note
from deadletter.ports import Fate

_base = st.integers(0, 10**12)
_offsets = st.integers(0, 200)
_acts = st.lists(
    st.tuples(st.sampled_from(["claim", "unclaim", "finish", "skip"]), _offsets), max_size=80
)


def applied(base: int, acts: list[tuple[str, int]]) -> tuple[Progress, set[int]]:
    """A progress after these acts, and the offsets that have ended."""
    progress, ended = Progress(base), set[int]()
    for act, place in acts:
        offset = base + place
        match act:
            case "claim":
                progress.claim(offset)
            case "unclaim":
                progress.unclaim(offset)
            case "finish":
                progress.finish(offset, Fate.HANDLED)
                ended.add(offset)
            case "skip":
                progress.skip(offset, offset + 3)
                ended |= {offset, offset + 1, offset + 2}
    return progress, ended


@given(_base, _acts)
def test_the_base_is_the_first_that_has_not_ended(base: int, acts: list[tuple[str, int]]) -> None:
    progress, ended = applied(base, acts)

    first = next(o for o in range(base, base + 300) if o not in ended)
    assert progress.base == first
    assert {o for o in range(base, base + 300) if progress.is_done(o)} == ended


@given(_base, _acts)
def test_a_note_tells_what_ended_and_what_is_in_somebodys_hands(
    base: int, acts: list[tuple[str, int]]
) -> None:
    progress, _ = applied(base, acts)

    again = read_note(progress.base, progress.note())

    everything = range(base, base + 300)
    assert again.base == progress.base
    for offset in everything:
        assert again.is_done(offset) == progress.is_done(offset)
        assert again.is_claimed(offset) == progress.is_claimed(offset)
    assert again.tally == progress.tally
    assert again.claims == progress.claims
    assert not again.left


@given(_base, _acts)
def test_settled_records_are_not_claimed(base: int, acts: list[tuple[str, int]]) -> None:
    progress, ended = applied(base, acts)

    assert not any(progress.is_claimed(offset) for offset in ended)
    assert progress.open_until(base + 300) == 300 - len(ended)


@given(_base, st.integers(0, 2**WINDOW - 1), st.integers(0, 2**WINDOW - 1))
def test_the_longest_note_fits_what_a_broker_takes(base: int, done: int, claimed: int) -> None:
    tally = {fate.value: 2**62 - 1 for fate in Fate}
    progress = Progress(base, done=done, claimed=claimed & ~done, tally=tally)

    note = progress.note(left=True)

    assert len(note.encode()) < 4096
    again = read_note(progress.base, note)
    assert again.note(left=True) == note
    assert again.left


@given(_base, st.text(max_size=300) | st.text(max_size=300).map("dlq1:".__add__))
def test_a_note_that_is_not_ours_says_nothing(base: int, note: str) -> None:
    progress = read_note(base, note)

    assert progress.base == base
    assert progress.claims == 0


def test_an_offset_finished_twice_is_counted_once() -> None:
    progress = Progress(5)

    progress.finish(7, Fate.HANDLED)
    progress.finish(7, Fate.BURIED)
    progress.finish(3, Fate.BURIED)

    assert progress.tally == {Fate.HANDLED: 1}
    assert progress.base == 5
