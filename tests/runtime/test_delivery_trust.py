"""Lineages and attempts that deliveries come with: which are believed."""

from collections.abc import Collection
from datetime import UTC, datetime

import pytest
from msgspec import structs

from deadletter.core.events import Event, HeadersIgnored
from deadletter.core.message import Delivery, Lineage, Message
from deadletter.core.signing import Keys, sign_lineage
from deadletter.ports import Durability, Features
from deadletter.runtime.deliveries import Trust

NOW = datetime(2026, 5, 4, tzinfo=UTC)
KEYS = Keys(b"k" * 32)
OTHERS = Keys(b"o" * 32)
SHARED = Features(engine="shared", durability=Durability.REPLICATED, owns_fields=False)
OWN = structs.replace(SHARED, owns_fields=True)
LINEAGE = Lineage(letter_id="a" * 24, generation=2, campaign="c")


def a_copy(sent_to: str, keys: Keys = KEYS) -> Message:
    message = Message(id="m-1", body=b"body", sent_at=NOW, lineage=LINEAGE)
    return sign_lineage(message, sent_to, keys)


def checked(
    message: Message,
    mailbox: str,
    *,
    features: Features = SHARED,
    keys: Keys = KEYS,
    dead_queue_of: Collection[str] = (),
    unsigned: bool = False,
) -> tuple[Delivery, list[str]]:
    """What is left of a delivery, and what was said to be ignored."""
    events: list[Event] = []
    trust = Trust(features, keys, events.append, dead_queue_of)
    delivery = Delivery(message=message, mailbox=mailbox, unsigned=unsigned)
    [left] = trust.checked([delivery])
    said = [event for event in events if isinstance(event, HeadersIgnored)]
    assert all((e.mailbox, e.message_id) == (mailbox, "m-1") for e in said)
    return left, [event.what for event in said]


def test_a_copy_in_the_mailbox_it_was_sent_to_is_believed() -> None:
    copy = a_copy("orders")

    assert checked(copy, "orders") == (Delivery(message=copy, mailbox="orders"), [])


@pytest.mark.parametrize(
    ("dead", "users"),
    [("orders-dlq", ()), ("orders.dead", ()), ("graveyard", ("payments", "orders"))],
)
def test_a_copy_that_the_broker_moved_to_the_dead_queue_is_believed(
    dead: str, users: Collection[str]
) -> None:
    copy = a_copy("orders")

    left, ignored = checked(copy, dead, dead_queue_of=users)

    assert left.message == copy
    assert ignored == []


@pytest.mark.parametrize(
    ("place", "users"),
    [
        ("payments", ()),
        ("payments-dlq", ()),
        ("graveyard", ()),
        ("graveyard", ("payments",)),
        ("orders-eu-dlq", ()),
    ],
)
def test_a_copy_that_somebody_put_elsewhere_is_a_message_like_any_other(
    place: str, users: Collection[str]
) -> None:
    left, ignored = checked(a_copy("orders"), place, dead_queue_of=users)

    assert left.message == structs.replace(a_copy("orders"), lineage=None)
    assert ignored == ["lineage"]


def test_a_copy_of_a_dead_letter_does_not_count_in_its_mailbox() -> None:
    left, ignored = checked(a_copy("orders-dlq"), "orders")

    assert left.message.lineage is None
    assert ignored == ["lineage"]


@pytest.mark.parametrize(
    "change",
    [
        {"letter_id": "b" * 24},
        {"generation": 3},
        {"campaign": "d"},
        {"mailbox": "payments"},
        {"mailbox": ""},
        {"signature": ""},
        {"signature": "x" * 52},
    ],
)
def test_no_field_of_a_lineage_can_be_changed(change: dict[str, object]) -> None:
    copy = a_copy("orders")
    assert copy.lineage is not None
    forged = structs.replace(copy, lineage=structs.replace(copy.lineage, **change))

    left, ignored = checked(forged, "payments-dlq", dead_queue_of=("payments",))

    assert left.message.lineage is None
    assert ignored == ["lineage"]


@pytest.mark.parametrize(
    "forged",
    [
        structs.replace(a_copy("orders"), body=b"another"),
        a_copy("orders", OTHERS),
        Message(id="m-1", body=b"body", sent_at=NOW, lineage=LINEAGE),
    ],
    ids=["body", "key", "unsigned"],
)
def test_forged_lineage_is_not_trusted(forged: Message) -> None:
    for place in ("orders", "orders-dlq"):
        left, ignored = checked(forged, place, dead_queue_of=("orders",))

        assert left.message.lineage is None
        assert ignored == ["lineage"]


@pytest.mark.parametrize(
    ("keys", "named"), [(KEYS, ""), (OTHERS, OTHERS.ids[0])], ids=["ours", "theirs"]
)
def test_a_key_that_we_do_not_have_is_named(keys: Keys, named: str) -> None:
    events: list[Event] = []
    trust = Trust(SHARED, KEYS, events.append)

    trust.checked([Delivery(message=a_copy("orders", keys), mailbox="payments")])

    [event] = events
    assert isinstance(event, HeadersIgnored)
    assert event.key == named


def test_a_key_that_signed_before_still_counts() -> None:
    newer = Keys(b"n" * 32, b"k" * 32)

    assert checked(a_copy("orders"), "orders", keys=newer)[1] == []


def test_an_engine_that_owns_its_fields_is_believed() -> None:
    message = Message(id="m-1", body=b"body", sent_at=NOW, lineage=LINEAGE)

    left, ignored = checked(message, "anywhere", features=OWN)

    assert left.message == message
    assert ignored == []


def test_attempts_that_none_of_us_wrote_are_told_of() -> None:
    message = Message(id="m-1", body=b"body", sent_at=NOW)

    left, ignored = checked(message, "orders", unsigned=True)

    assert left.message == message
    assert ignored == ["attempts"]
