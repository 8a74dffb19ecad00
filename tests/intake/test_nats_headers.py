"""Headers of NATS messages go through an office byte for byte."""

import pytest

from deadletter.brokers.nats.headers import MessageExtras, block_of, pack, read_block
from deadletter.core.errors import Refused
from deadletter.core.message import Headers, Lineage, Message
from deadletter.core.signing import Keys
from deadletter.intake.dialects import Found, letter_of
from deadletter.testing.fakes import START

KEYS = Keys(b"k" * 32)


def block(*lines: bytes) -> bytes:
    return b"\r\n".join((b"NATS/1.0", *lines, b"", b""))


def kept(raw: bytes) -> Message:
    """The message of a letter, drained from a stream."""
    headers, odd = read_block(raw)
    found = Found(
        kind="nats",
        place="DLQ",
        id="DLQ/1",
        body=b"body",
        headers=headers,
        raw=pack(MessageExtras(odd)),
    )
    return letter_of(found, START, KEYS).message


def sent(message: Message) -> bytes:
    headers = block_of(message)
    return b"" if headers is None else headers.block


def plain(*headers: tuple[str, bytes], generation: int = 0) -> Message:
    lineage = Lineage(letter_id="a" * 24, generation=generation, campaign="c")
    return Message(
        id="m",
        body=b"",
        sent_at=START,
        headers=tuple(headers),
        lineage=lineage if generation else None,
    )


@pytest.mark.parametrize(
    "lines",
    [
        (b"a: 1", b"b: 2", b"a: 3"),
        (b"tight:1", b"wide:   1  "),
        ("Gr\u00fc\u00dfe: sch\u00f6n".encode(), b"x: \xff\xfe"),
        (b"\xff\xfe: name", b"with space: 1"),
    ],
)
def test_headers_are_sent_as_they_came(lines: tuple[bytes, ...]) -> None:
    assert sent(kept(block(*lines))) == block(*lines)


def test_all_values_of_a_name_are_kept_in_order() -> None:
    headers, odd = read_block(block(b"a: 1", b"b: 2", b"a: 3"))

    assert headers == (("a", b"1"), ("b", b"2"), ("a", b"3"))
    assert odd == b""


def test_a_copy_has_an_id_of_its_own_and_gives_it_back() -> None:
    for given in ((), (("Nats-Msg-Id", b"m"),)):
        headers: Headers = given
        raw = sent(plain(*headers, generation=2))

        assert raw.count(b"Nats-Msg-Id: ") == 1
        assert b"~2\r\n" in raw
        found = [one for one in read_block(raw)[0] if one[0] == "Nats-Msg-Id"]
        assert tuple(found) == given


def test_publish_instructions_to_the_server_are_not_repeated() -> None:
    asked = (b"Nats-Expected-Stream: S", b"nats-rollup: all", b"Nats-Batch-Id: 1")

    assert sent(kept(block(*asked, b"a: 1"))) == block(b"a: 1")


@pytest.mark.parametrize(
    ("name", "value"), [("a:b", b"1"), ("a", b"1\r\nb: 2"), ("a\nb", b"1"), ("a b", b"1")]
)
def test_a_header_that_would_be_another_is_refused(name: str, value: bytes) -> None:
    with pytest.raises(Refused, match="does not take the header"):
        block_of(plain((name, value)))
