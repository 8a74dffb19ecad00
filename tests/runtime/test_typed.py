"""Bodies as the handler wants them."""

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from msgspec import Struct
from pydantic import BaseModel

from deadletter.core.errors import ConfigError, Malformed
from deadletter.core.message import Delivery, Message
from deadletter.runtime.handlers import Context, encode, typed
from deadletter.testing.fakes import FakeClock


class Order(Struct):
    id: str
    amount: int


@dataclass
class Parcel:
    weight: float


class Note(TypedDict):
    text: str


class Invoice(BaseModel):
    total: int


def delivery(body: bytes, content_type: str | None = None) -> Delivery:
    message = Message(id="m-1", body=body, sent_at=FakeClock().now(), content_type=content_type)
    return Delivery(message=message, mailbox="orders")


def takes_order(order: Order) -> Any:
    return order


def takes_parcel(parcel: Parcel) -> Any:
    return parcel


def takes_note(note: Note) -> Any:
    return note


def takes_invoice(invoice: Invoice) -> Any:
    return invoice


def takes_dict(body: dict[str, int]) -> Any:
    return body


def takes_bytes(body: bytes) -> Any:
    return body


def takes_text(body: str) -> Any:
    return body


def takes_message(message: Message) -> Any:
    return message.id


def takes_delivery(delivery: Delivery) -> Any:
    return delivery.mailbox


def takes_anything(body):  # type: ignore[no-untyped-def]
    return body


@pytest.mark.parametrize(
    ("handler", "body", "expected"),
    [
        (takes_order, b'{"id":"o-1","amount":42}', Order("o-1", 42)),
        (takes_parcel, b'{"weight":1.5}', Parcel(1.5)),
        (takes_note, b'{"text":"hi"}', {"text": "hi"}),
        (takes_invoice, b'{"total":7}', Invoice(total=7)),
        (takes_dict, b'{"a":1}', {"a": 1}),
        (takes_bytes, b"\x00\xff", b"\x00\xff"),
        (takes_text, "grüß".encode(), "grüß"),
        (takes_message, b"", "m-1"),
        (takes_delivery, b"", "orders"),
        (takes_anything, b"raw", b"raw"),
    ],
)
def test_a_handler_gets_what_its_parameter_asks_for(
    handler: Any, body: bytes, expected: object
) -> None:
    assert typed(handler)(delivery(body)) == expected


def test_an_untyped_handler_gets_json_decoded() -> None:
    found = typed(takes_anything)(delivery(b'{"a":[1]}', "application/json"))

    assert found == {"a": [1]}


@pytest.mark.parametrize(
    ("handler", "body"),
    [
        (takes_order, b'{"id":"o-1"}'),
        (takes_order, b'{"id":"o-1","amount":"many"}'),
        (takes_order, b""),
        (takes_order, b"\x00\xff"),
        (takes_order, b"[" * 100_000),
        (takes_parcel, b"null"),
        (takes_invoice, b'{"total":"x"}'),
        (takes_text, b"\xff\xfe"),
        (takes_dict, b'{"a":1e999}'),
    ],
)
def test_a_body_that_does_not_fit_is_malformed(handler: Any, body: bytes) -> None:
    with pytest.raises(Malformed, match="does not fit"):
        typed(handler)(delivery(body))


def test_a_handler_without_parameters_is_refused_at_registration() -> None:
    def handler() -> None: ...

    with pytest.raises(ConfigError, match="must take the body"):
        typed(handler)


def test_a_second_parameter_must_be_a_context() -> None:
    def handler(order: Order, other: int) -> None: ...

    with pytest.raises(ConfigError, match="Context"):
        typed(handler)


def test_a_type_that_cannot_be_decoded_is_refused_at_registration() -> None:
    def handler(order: Context) -> None: ...

    with pytest.raises(ConfigError, match="cannot decode"):
        typed(handler)


@pytest.mark.parametrize(
    ("body", "data", "content_type"),
    [
        (b"\x00", b"\x00", None),
        (bytearray(b"ab"), b"ab", None),
        ("hé", "hé".encode(), "text/plain"),
        ({"a": 1}, b'{"a":1}', "application/json"),
        (Order("o", 1), b'{"id":"o","amount":1}', "application/json"),
        (Invoice(total=1), b'{"total":1}', "application/json"),
    ],
)
def test_bodies_are_sent_in_their_natural_form(
    body: object, data: bytes, content_type: str | None
) -> None:
    assert encode(body) == (data, content_type)


def test_a_body_that_cannot_be_sent_says_what_could_be() -> None:
    with pytest.raises(ConfigError, match="Send bytes, text"):
        encode(object())
