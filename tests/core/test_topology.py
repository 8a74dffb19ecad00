"""Which mailboxes there may be, and which may be whose dead queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.topology import check_deletion, check_name, validate
from deadletter.ports import QueueOptions

_names = st.sampled_from(["a", "b", "c", "d"])
_options = st.builds(
    QueueOptions,
    name=_names,
    dead_queue=st.none() | _names,
    max_attempts=st.integers(-1, 3),
    expire_after=st.none() | st.sampled_from([-1.0, 5.0]),
)


def existing(*options: QueueOptions) -> dict[str, QueueOptions]:
    return {each.name: each for each in options}


@pytest.mark.parametrize("name", ["a", "x" * 512, "dlq.eu/orders-1", "größe", "注文"])
def test_ordinary_names_are_fine(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 513, "a b", "a\tb", "a\u00a0b", "a~", "\x00", "\x7f", "\u2028", "\ud800"]
)
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        check_name(name)


@given(st.text(max_size=20))
def test_a_name_that_passes_can_be_written_anywhere(name: str) -> None:
    try:
        check_name(name)
    except ConfigError:
        return

    assert name.encode().decode() == name
    assert name == "".join(name.split())
    assert name.isprintable()


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        (QueueOptions(name="a", dead_queue="a"), "cannot reference itself"),
        (QueueOptions(name="a", dead_queue="x"), "does not exist; create it first"),
        (QueueOptions(name="a", dead_queue="b"), "cannot have its own dead_queue"),
        (QueueOptions(name="c", dead_queue="d"), "cannot have its own dead_queue"),
        (QueueOptions(name="a", dead_queue="e"), "take it away first"),
        (QueueOptions(name="c", expire_after=1.0), "never expire"),
        (QueueOptions(name="a", max_attempts=65_537), "0 .unlimited. to 65536"),
        (QueueOptions(name="a", expire_after=0.0), "> 0"),
        (QueueOptions(name="a", expire_after=float("nan")), "> 0"),
        (QueueOptions(name="a", expire_after=1e300), "at most 3,153,600,000"),
    ],
)
def test_a_refusal_says_what_is_wrong(options: QueueOptions, saying: str) -> None:
    there = existing(
        QueueOptions(name="b", dead_queue="c"),
        QueueOptions(name="c"),
        QueueOptions(name="d"),
        QueueOptions(name="e", expire_after=5.0),
    )

    with pytest.raises(ConfigError, match=saying):
        validate(options, there)


def test_many_queues_may_share_a_dead_queue() -> None:
    there = existing(QueueOptions(name="dead"), QueueOptions(name="a", dead_queue="dead"))

    validate(QueueOptions(name="b", dead_queue="dead", max_attempts=65_536), there)


def test_a_queue_may_change_its_dead_queue() -> None:
    there = existing(
        QueueOptions(name="dead"),
        QueueOptions(name="other"),
        QueueOptions(name="a", dead_queue="dead"),
    )

    validate(QueueOptions(name="a", dead_queue="other"), there)
    validate(QueueOptions(name="a"), there)


def test_deleting_a_dead_queue_in_use_names_its_users() -> None:
    there = existing(
        QueueOptions(name="dead"),
        QueueOptions(name="b", dead_queue="dead"),
        QueueOptions(name="a", dead_queue="dead"),
    )

    with pytest.raises(Conflict, match="dead queue of a, b: give them another one"):
        check_deletion("dead", there)

    assert check_deletion("dead", there, force=True) == ["a", "b"]
    assert check_deletion("a", there) == []


@given(st.lists(_options, max_size=30))
def test_accepted_topologies_never_give_a_dead_queue_a_dead_queue(
    changes: list[QueueOptions],
) -> None:
    there: dict[str, QueueOptions] = {}

    for options in changes:
        try:
            validate(options, there)
        except ConfigError:
            continue
        there[options.name] = options

    for options in there.values():
        if options.dead_queue is not None:
            assert there[options.dead_queue].dead_queue is None
            assert there[options.dead_queue].expire_after is None
