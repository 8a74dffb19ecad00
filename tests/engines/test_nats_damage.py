"""Bits that turn on the way from a NATS server, in what no checksum covers."""

from msgspec import structs
from nats.aio.client import Client
from nats.aio.msg import Msg

from deadletter.brokers.nats.messages import Arrival, are_in_order, arrival
from deadletter.brokers.nats.streams import MailboxNames

PLACE = MailboxNames("dlq.orders", "dlq-orders", "dlq-worker", "dlq-book.of.orders", own=True)
HEAD = "$JS.ACK.dlq-orders.dlq-worker."


def a_delivery(reply: str) -> Msg:
    return Msg(_client=Client(), subject="_INBOX.a", reply=reply, data=b"body")


def read(*, count: int = 1, seq: int = 145, number: int = 150) -> Arrival:
    reply = f"{HEAD}{count}.{seq}.{number}.1700000000000000000.7"
    return arrival(a_delivery(reply), PLACE)


def test_a_delivery_is_settled_only_where_its_consumer_listens() -> None:
    whole = f"{HEAD}1.145.150.1700000000000000000.7".encode()
    for bit in range(8 * len(HEAD)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            reply = changed.decode()
            one = arrival(a_delivery(reply), PLACE)
        except (ValueError, IndexError):
            continue
        raise AssertionError(f"{reply!a} was taken for {one}")


def test_a_delivery_by_way_of_a_domain_is_read() -> None:
    reply = "$JS.ACK.hub.AABBCC.dlq-orders.dlq-worker.2.145.150.1700000000000000000.7.x"

    one = arrival(a_delivery(reply), PLACE)

    assert (one.seq, one.count, one.number) == (145, 2, 150)


def test_deliveries_are_numbered_in_the_order_they_come() -> None:
    first, second = read(), read(seq=146, number=151)
    again = read(count=2, seq=12, number=152)

    assert are_in_order([first, second, again])
    assert are_in_order([again, structs.replace(second, number=160)])
    assert not are_in_order([second, first])
    assert not are_in_order([first, structs.replace(second, seq=145)])
    assert not are_in_order([structs.replace(first, seq=945), second])
    assert not are_in_order([first, structs.replace(again, number=150)])
